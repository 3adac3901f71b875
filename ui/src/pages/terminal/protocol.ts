/**
 * A session in a running task over a WebSocket: a ticket first, then binary messages of one byte for their kind and the content
 * (docs/reference/dashboard-api.md). What is typed waits for the window that the task gives. Nothing here draws.
 */
export const KIND = { input: 0, output: 1, errors: 2, size: 5, started: 7, exit: 8, error: 9, window: 11, hangUp: 12 } as const;

export const WINDOW_BYTES = 256 * 1024;
const PIECE_BYTES = 32 * 1024;
export const WAITING_BYTES_MAX = 4 * 1024 * 1024; // what is pasted beyond this is refused

export interface Ended {
  code: number;
  signal: number;
  taskEnded: boolean;
}

export interface Refused {
  title: string;
  detail: string;
  hint: string;
}

export interface Handlers {
  onoutput: (bytes: Uint8Array) => void;
  onstarted: () => void;
  onend: (end: Ended | Refused | null) => void; // null: the connection was cut
}

export const framed = (kind: number, content: Uint8Array = new Uint8Array()): Uint8Array<ArrayBuffer> => {
  const message = new Uint8Array(content.length + 1);
  message[0] = kind;
  message.set(content, 1);
  return message;
};

export function sizeOf(rows: number, columns: number): Uint8Array<ArrayBuffer> {
  const content = new DataView(new ArrayBuffer(4));
  content.setUint16(0, Math.min(65_535, Math.max(1, rows)));
  content.setUint16(2, Math.min(65_535, Math.max(1, columns)));
  return framed(KIND.size, new Uint8Array(content.buffer));
}

/** How many bytes more are taken; 0 for what is no window. */
export function windowOf(content: Uint8Array): number {
  return content.length === 4 ? new DataView(content.buffer, content.byteOffset, 4).getUint32(0) : 0;
}

export function exitOf(content: Uint8Array): Ended | null {
  const found = jsonOf(content);
  return found && typeof found['code'] === 'number'
    ? { code: found['code'], signal: Number(found['signal'] ?? 0), taskEnded: found['task_ended'] === true }
    : null;
}

export function problemIn(content: Uint8Array): Refused {
  const found = jsonOf(content) ?? {};
  const text = (name: string): string => (typeof found[name] === 'string' ? found[name] : '');
  return { title: text('title') || 'The session ended', detail: text('detail'), hint: text('hint') };
}

function jsonOf(content: Uint8Array): Record<string, unknown> | null {
  try {
    const found: unknown = JSON.parse(new TextDecoder().decode(content));
    return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** Bytes that wait for the window, cut into pieces that may be sent. */
export class InputQueue {
  #waiting: Uint8Array[] = [];
  #bytes = 0;
  #window = WINDOW_BYTES;

  /** Whether there was room for it. */
  put(bytes: Uint8Array): boolean {
    if (this.#bytes + bytes.length > WAITING_BYTES_MAX) return false;
    this.#waiting.push(bytes);
    this.#bytes += bytes.length;
    return true;
  }

  open(more: number): void {
    this.#window += more;
  }

  /** The next piece that the window allows, or null. */
  take(): Uint8Array | null {
    const first = this.#waiting[0];
    const size = Math.min(first?.length ?? 0, this.#window, PIECE_BYTES);
    if (!first || size === 0) return null;
    const piece = first.subarray(0, size);
    if (size === first.length) this.#waiting.shift();
    else this.#waiting[0] = first.subarray(size);
    this.#bytes -= size;
    this.#window -= size;
    return piece;
  }
}

export class TerminalSession {
  #socket: WebSocket;
  #input = new InputQueue();
  #isOver = false;

  constructor(
    address: string,
    ticket: string,
    private readonly handlers: Handlers,
  ) {
    this.#socket = new WebSocket(address);
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#socket.send(ticket);
    this.#socket.onmessage = (event) => event.data instanceof ArrayBuffer && this.#take(new Uint8Array(event.data));
    this.#socket.onclose = () => this.#end(null);
  }

  /** Whether it was taken; a paste of megabytes into a task that reads nothing is not. */
  type(bytes: Uint8Array): boolean {
    const isTaken = this.#input.put(bytes);
    this.#send();
    return isTaken;
  }

  resize(rows: number, columns: number): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(sizeOf(rows, columns));
  }

  close(): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(framed(KIND.hangUp));
    this.#isOver = true;
    this.#socket.close();
  }

  #take(message: Uint8Array): void {
    const content = message.subarray(1);
    if (message[0] === KIND.output || message[0] === KIND.errors) this.handlers.onoutput(content);
    else if (message[0] === KIND.started) this.handlers.onstarted();
    else if (message[0] === KIND.exit) this.#end(exitOf(content));
    else if (message[0] === KIND.error) this.#end(problemIn(content));
    else if (message[0] === KIND.window) {
      this.#input.open(windowOf(content));
      this.#send();
    }
  }

  #send(): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    for (let piece = this.#input.take(); piece; piece = this.#input.take()) this.#socket.send(framed(KIND.input, piece));
  }

  #end(how: Ended | Refused | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.handlers.onend(how);
    this.#socket.close();
  }
}
