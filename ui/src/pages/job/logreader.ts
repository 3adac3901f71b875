/** Reads pieces of a task's log over REST. A read of a piece is cut off when it has what it wanted. */
import { address, request } from '../../lib/api';
import { split, lineOf, type Line } from './logwindow';

export interface LogPlace {
  task: string;
  stream: 'stdout' | 'stderr';
  /** Null: the newest one. */
  attempt: number | null;
}

export interface LogAnswer {
  offset: number;
  size: number;
  attempt: number;
  /** Bytes before `offset` that were not kept. */
  gap: number;
  reader: ReadableStreamDefaultReader<Uint8Array>;
}

export async function openLog(
  place: LogPlace,
  query: { offset?: number; lines?: number; follow?: boolean },
  signal: AbortSignal,
): Promise<LogAnswer> {
  const url = address('/v1/tasks/{id}/logs', { id: place.task }, { stream: place.stream, attempt: place.attempt, ...query });
  const response = await request(url, { signal });
  const header = (name: string): number => Number(response.headers.get(`X-Phalanx-${name}`) ?? 0);
  return {
    offset: header('Offset'),
    size: header('Size'),
    attempt: header('Attempt'),
    gap: header('Gap'),
    reader: response.body!.getReader(),
  };
}

/** Up to `most` bytes from an offset on. */
export async function readPiece(place: LogPlace, offset: number, most: number, signal: AbortSignal): Promise<{ bytes: Uint8Array; offset: number; size: number }> {
  const abort = new AbortController();
  const give = (): void => abort.abort();
  signal.addEventListener('abort', give);
  try {
    const answer = await openLog(place, { offset }, abort.signal);
    const pieces: Uint8Array[] = [];
    let length = 0;
    while (length < most) {
      const { value, done } = await answer.reader.read();
      if (done) break;
      pieces.push(value);
      length += value.length;
    }
    const bytes = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return { bytes: bytes.subarray(0, Math.min(most, length)), offset: answer.offset, size: answer.size };
  } finally {
    signal.removeEventListener('abort', give);
    abort.abort();
  }
}

export const MATCHES_MAX = 1000;
const CARRY_MAX = 64 * 1024;

/** Every line with `words` in it, up to a limit, with how much of the log was read so far. Case does not matter. */
export async function search(
  place: LogPlace,
  words: string,
  tell: (matches: readonly Line[], share: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const answer = await openLog(place, { offset: 0 }, signal);
  const wanted = words.toLowerCase();
  const matches: Line[] = [];
  const consider = (line: Line): void => {
    if (line.text.toLowerCase().includes(wanted)) matches.push(line);
  };
  let rest = new Uint8Array(0);
  let offset = answer.offset;
  for (;;) {
    const { value, done } = await answer.reader.read();
    if (done || matches.length >= MATCHES_MAX) break;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    const found = split(bytes, offset);
    found.lines.forEach(consider);
    // Of a line without an end the beginning is searched, as it is the beginning that is shown.
    if (found.rest.length > CARRY_MAX) consider(lineOf(found.rest, found.restOffset));
    rest = found.rest.length > CARRY_MAX ? new Uint8Array(0) : found.rest.slice();
    offset = found.restOffset + (found.rest.length - rest.length);
    tell(matches.slice(0, MATCHES_MAX), answer.size ? Math.min(1, offset / answer.size) : 1);
  }
  if (rest.length && matches.length < MATCHES_MAX) consider(lineOf(rest, offset));
  void answer.reader.cancel();
  tell(matches.slice(0, MATCHES_MAX), 1);
}
