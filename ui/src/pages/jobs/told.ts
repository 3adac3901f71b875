/** What the stream has told of rows of jobs, so that an answer of a moment ago takes nothing of it back. */
import type { Schemas } from '../../lib/api';
import type { Changes } from '../../lib/events';

type Row = Schemas['JobRow'];
type Rows = Schemas['JobRows'];

const RECENT_MAX = 60; // messages: a quarter of a minute, and an answer is shared for 3 s at most

export class ToldRows {
  #recent: Changes[] = [];

  note(changes: Changes): void {
    if (changes.rows?.length && this.#recent.push(changes) > RECENT_MAX) this.#recent.shift();
  }

  /** The rows of an answer, with those in their place that were told of a later state than the answer was made from. */
  withLater(reply: Rows): Row[] {
    const madeFrom = reply.rows_revision || reply.revision; // A leader of the version before tells only that of the list.
    const later = new Map<string, Row>();
    for (const { revision, rows } of this.#recent) if (revision > madeFrom) rows?.forEach((row) => later.set(row.id, row));
    return reply.rows.map((row) => later.get(row.id) ?? row);
  }
}
