/**
 * The log that is looked at: which part of it is in memory, following its end, reading earlier and later parts. It knows no
 * elements; `Logs.svelte` shows `lines` and says where it is scrolled.
 */
import { ApiError } from '../../lib/api';
import { openLog, readPiece, type LogPlace } from './logreader';
import { LINES_MAX, LogWindow, type Line } from './logwindow';

const PIECE = 256 * 1024;
const TAIL_LINES = 1000;

export class LogView {
  lines = $state.raw<readonly Line[]>([]);
  size = $state(0);
  start = $state(0);
  attempt = $state(0);
  /** Bytes before `start` that were not kept anywhere. */
  gap = $state(0);
  /** Whether new lines come by themselves. */
  isLive = $state(false);
  /** Whether the log's end is in `lines`. */
  isAtEnd = $state(false);
  isReading = $state(false);
  hasEnded = $state(false);
  error = $state.raw<ApiError | null>(null);
  readonly place: LogPlace;
  #window = new LogWindow();
  #abort = new AbortController();
  #isAnnounced = false;
  /** Called before lines are drawn that moved the others: by how many rows. */
  onmoved: (rows: number) => void = () => undefined;

  constructor(place: LogPlace) {
    this.place = place;
  }

  close(): void {
    this.#abort.abort();
  }

  /** The last lines, and then what is written. */
  async tail(): Promise<void> {
    await this.#live(() => openLog(this.place, { lines: TAIL_LINES, follow: true }, this.#restart()), true);
  }

  /** The beginning of the log. */
  async head(): Promise<void> {
    await this.at(0);
  }

  /** The part round an offset; the line there is the first if the offset is one of a line. */
  async at(offset: number): Promise<void> {
    const signal = this.#restart();
    await this.#quietly(async () => {
      const from = Math.max(0, offset - PIECE / 4);
      const piece = await readPiece(this.place, from, PIECE, signal);
      const whole = from > 0 ? piece.bytes.indexOf(10) + 1 : 0;
      const skipped = lastLines(piece.bytes.subarray(0, Math.max(whole, offset - piece.offset)), whole, PIECE_LINES / 4);
      this.#window = new LogWindow(piece.offset + skipped);
      const bytes = firstLines(piece.bytes.subarray(skipped));
      this.#window.append(bytes);
      this.size = piece.size;
      this.isAtEnd = piece.offset + skipped + bytes.length >= piece.size;
    });
    this.#announce();
  }

  /** More at the beginning. */
  async earlier(): Promise<void> {
    if (this.isReading || this.#window.start <= 0) return;
    const signal = this.#abort.signal;
    await this.#quietly(async () => {
      const end = this.#window.start;
      const from = Math.max(0, end - PIECE);
      const piece = await readPiece(this.place, from, end - from, signal);
      if (signal.aborted || this.#window.start !== end) return;
      if (piece.offset >= end) {
        this.gap = end; // What was before was not kept.
        this.#window.start = 0;
        return;
      }
      const skipped = lastLines(piece.bytes, piece.offset > 0 ? piece.bytes.indexOf(10) + 1 : 0);
      const before = this.#window.lines.length;
      const added = this.#window.prepend(piece.bytes.subarray(skipped), piece.offset + skipped);
      if (before + added > LINES_MAX) this.#leaveEnd();
      this.lines = [...this.#window.shown]; // A new list each time: what shows it sees that it changed.
      this.start = this.#window.start;
      this.onmoved(added);
    });
  }

  /** More at the end, where the log's end is not here. */
  async later(): Promise<void> {
    if (this.isReading || this.isLive || this.isAtEnd) return;
    const signal = this.#abort.signal;
    await this.#quietly(async () => {
      const piece = await readPiece(this.place, this.#window.end, PIECE, signal);
      if (signal.aborted) return;
      this.#window = continued(this.#window);
      const bytes = firstLines(piece.bytes);
      const gone = this.#window.append(bytes);
      this.size = piece.size;
      this.isAtEnd = piece.offset + bytes.length >= piece.size;
      this.lines = [...this.#window.shown]; // A new list each time: what shows it sees that it changed.
      this.start = this.#window.start;
      if (gone) this.onmoved(-gone);
    });
  }

  #leaveEnd(): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.isLive = false;
    this.isAtEnd = false;
  }

  #restart(): AbortSignal {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.isLive = false;
    this.hasEnded = false;
    return this.#abort.signal;
  }

  async #live(open: () => ReturnType<typeof openLog>, isNew: boolean): Promise<void> {
    const asked = open();
    const signal = this.#abort.signal;
    try {
      const answer = await asked;
      if (isNew) this.#window = new LogWindow(answer.offset);
      this.size = answer.size;
      this.attempt = answer.attempt;
      this.gap = answer.gap;
      this.error = null;
      this.isLive = this.isAtEnd = true;
      this.#announce();
      for (;;) {
        const { value, done } = await answer.reader.read();
        if (signal.aborted) return;
        if (done) break;
        const gone = this.#window.append(value);
        this.size = Math.max(this.size, this.#window.end);
        if (gone) this.onmoved(-gone);
        this.#announce();
      }
      this.hasEnded = true;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error instanceof ApiError ? error : new ApiError(0, { title: 'The log was cut off', detail: 'The connection to the coordinator ended.' });
    }
    this.isLive = false;
  }

  async #quietly(read: () => Promise<void>): Promise<void> {
    const signal = this.#abort.signal;
    this.isReading = true;
    try {
      await read();
      this.error = null;
    } catch (error) {
      if (!signal.aborted) this.error = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) });
    } finally {
      this.isReading = false;
    }
  }

  /** Once per frame at most. */
  #announce(): void {
    if (this.#isAnnounced) return;
    this.#isAnnounced = true;
    requestAnimationFrame(() => {
      this.#isAnnounced = false;
      this.lines = [...this.#window.shown]; // A new list each time: what shows it sees that it changed.
      this.start = this.#window.start;
    });
  }
}

const PIECE_LINES = LINES_MAX / 4;

/** No more lines at once than fit beside those that are looked at. */
function firstLines(bytes: Uint8Array): Uint8Array {
  let end = 0;
  for (let lines = 0; lines < PIECE_LINES; lines++) {
    const at = bytes.indexOf(10, end);
    if (at < 0) return bytes;
    end = at + 1;
  }
  return bytes.subarray(0, end);
}

/** Where the last lines of `bytes` begin, not before `from`. */
function lastLines(bytes: Uint8Array, from: number, most = PIECE_LINES): number {
  let begin = bytes.length;
  for (let lines = 0; lines <= most; lines++) {
    const at = begin < 2 ? -1 : bytes.lastIndexOf(10, begin - 2); // A negative place would count from the end.
    if (at < from) return from;
    begin = at + 1;
  }
  return begin;
}

/** A window whose open line is read again from its beginning. */
function continued(window: LogWindow): LogWindow {
  const made = new LogWindow(window.end);
  made.lines = window.lines;
  made.start = window.start;
  return made;
}
