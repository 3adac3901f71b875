/** Server-sent events read from a fetch, so that a refusal is a problem with a sentence and the last id is ours to send. */

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

const EVENT_MAX = 32 * 1024 * 1024;

/** Cuts a text stream into events; `take` gives those that are complete. */
export class EventReader {
  /** The newest id that the stream told, with or without an event. */
  lastId = '';
  #rest = '';
  #id = '';
  #event = '';
  #data: string[] = [];
  retryMs: number | null = null;

  take(piece: string): ServerEvent[] {
    const done: ServerEvent[] = [];
    this.#rest += piece;
    if (this.#rest.length > EVENT_MAX) throw new Error(`an event of the stream has more than ${EVENT_MAX} characters`);
    for (;;) {
      const end = this.#rest.indexOf('\n');
      if (end < 0) return done;
      const line = this.#rest.slice(0, end).replace(/\r$/, '');
      this.#rest = this.#rest.slice(end + 1);
      if (line === '') this.#finish(done);
      else this.#field(line);
    }
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    if (colon === 0) return; // A comment keeps the connection open.
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') this.#data.push(value);
    else if (name === 'event') this.#event = value;
    else if (name === 'id') this.#id = value;
    else if (name === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
  }

  #finish(done: ServerEvent[]): void {
    this.lastId = this.#id;
    if (this.#data.length || this.#event) done.push({ id: this.#id, event: this.#event || 'message', data: this.#data.join('\n') });
    this.#event = '';
    this.#data = [];
  }
}
