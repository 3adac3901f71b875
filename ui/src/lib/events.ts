/** What the stream tells, read once and remembered, since several parts of a page look at each event. */
import type { Schemas } from './api';
import type { ServerEvent } from './sse';

export type Changes = Schemas['ChangesView'];
const read = new WeakMap<ServerEvent, Changes | null>();

export function changesOf(event: ServerEvent): Changes | null {
  let found = read.get(event);
  if (found === undefined) {
    try {
      found = event.event === 'changes' ? (JSON.parse(event.data) as Changes) : null;
    } catch {
      found = null;
    }
    read.set(event, found);
  }
  return found;
}

/** Whether an event is about this job; a stream that told too much says `many`. */
export function concernsJob(event: ServerEvent, id: string): boolean {
  const changes = changesOf(event);
  return changes !== null && (changes.many === true || (changes.rows ?? []).some((row) => row.id === id));
}
