/**
 * The part of a log that is in memory: lines with their offsets, taken from bytes. A log may have millions of lines, and one
 * line may have a megabyte, so both are bounded: lines leave at the other end, and of a long line only the beginning is kept.
 */

export interface Line {
  /** Of its first byte in the log. */
  offset: number;
  text: string;
  /** Bytes of the line that are not in `text`. */
  left: number;
}

export const LINE_BYTES_MAX = 16 * 1024;
export const LINES_MAX = 20_000;

const decoder = new TextDecoder('utf-8'); // What is no UTF-8 becomes U+FFFD.

export function lineOf(bytes: Uint8Array, offset: number, extra = 0): Line {
  const kept = bytes.length > LINE_BYTES_MAX ? bytes.subarray(0, LINE_BYTES_MAX) : bytes;
  return { offset, text: decoder.decode(kept), left: bytes.length - kept.length + extra };
}

/** Complete lines of `bytes`, which begin at `offset`; what follows the last newline is `rest`. */
export function split(bytes: Uint8Array, offset: number): { lines: Line[]; rest: Uint8Array; restOffset: number } {
  const lines: Line[] = [];
  let from = 0;
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
    lines.push(lineOf(bytes.subarray(from, at), offset + from));
    from = at + 1;
  }
  return { lines, rest: bytes.subarray(from), restOffset: offset + from };
}

export class LogWindow {
  lines: Line[] = [];
  /** Offset after the last complete line. */
  end = 0;
  /** Whether lines at the beginning were let go, or never read. */
  start = 0;
  /** The line that has no newline yet: its bytes, bounded, and how many came in all. */
  #open = new Uint8Array(0);
  #openBytes = 0;

  constructor(offset = 0) {
    this.start = this.end = offset;
  }

  /** Take bytes that follow what is here. Returns how many lines left at the beginning. */
  append(bytes: Uint8Array): number {
    const first = bytes.indexOf(10);
    if (first < 0) {
      this.#keepOpen(bytes);
      return 0;
    }
    if (this.#openBytes) {
      const head = new Uint8Array(this.#open.length + Math.min(first, LINE_BYTES_MAX));
      head.set(this.#open);
      head.set(bytes.subarray(0, Math.min(first, LINE_BYTES_MAX)), this.#open.length);
      const whole = this.#openBytes + first;
      const line = lineOf(head, this.end);
      line.left = whole - Math.min(head.length, LINE_BYTES_MAX);
      this.lines.push(line);
      this.end += whole + 1;
      bytes = bytes.subarray(first + 1);
    }
    this.#open = new Uint8Array(0);
    this.#openBytes = 0;
    const { lines, rest, restOffset } = split(bytes, this.end);
    for (const line of lines) this.lines.push(line);
    this.end = restOffset;
    this.#keepOpen(rest);
    return this.#trim();
  }

  /** Take bytes that come right before what is here; they begin at `offset`, with a whole line unless that is 0. */
  prepend(bytes: Uint8Array, offset: number): number {
    const { lines, rest, restOffset } = split(bytes, offset);
    if (rest.length) lines.push(lineOf(rest, restOffset)); // The log has no newline right before us: a gap.
    this.lines = [...lines, ...this.lines];
    this.start = offset;
    const over = this.lines.length - LINES_MAX;
    if (over > 0) {
      this.lines.length = LINES_MAX;
      const last = this.lines[LINES_MAX - 1]!;
      this.end = last.offset + new TextEncoder().encode(last.text).length + last.left + 1;
      this.#open = new Uint8Array(0);
      this.#openBytes = 0;
    }
    return lines.length;
  }

  /** All lines, with the one that is still being written. */
  get shown(): Line[] {
    if (!this.#openBytes) return this.lines;
    return [...this.lines, lineOf(this.#open, this.end, this.#openBytes - this.#open.length)];
  }

  #keepOpen(bytes: Uint8Array): void {
    const room = LINE_BYTES_MAX - this.#open.length;
    if (room > 0 && bytes.length) {
      const grown = new Uint8Array(this.#open.length + Math.min(room, bytes.length));
      grown.set(this.#open);
      grown.set(bytes.subarray(0, Math.min(room, bytes.length)), this.#open.length);
      this.#open = grown;
    }
    this.#openBytes += bytes.length;
  }

  #trim(): number {
    const over = this.lines.length - LINES_MAX;
    if (over <= 0) return 0;
    const by = over + Math.floor(LINES_MAX / 10); // Seldom, rather than with each line.
    this.lines = this.lines.slice(by);
    this.start = this.lines[0]!.offset;
    return by;
  }
}
