/**
 * The lines of a story, the newest first: the last ones at once, older ones on demand, and what has come since. Two requests
 * never run at the same time, so no line is there twice.
 */
import { ApiError, type Schemas } from '../../lib/api';

export type Line = Schemas['StoryLine'];
type Ask = (cursor: string) => Promise<Schemas['Page_StoryLine_']>;

/** More lines than anybody reads; those that go are asked for again as older ones. */
export const LINES_MAX = 5000;

export class StoryLines {
  lines = $state.raw<readonly Line[]>([]);
  /** Leads to older lines; null: the first line is here. */
  older = $state<string | null>(null);
  error = $state.raw<ApiError | null>(null);
  isAsking = $state(false);
  hasAsked = $state(false);
  #ask: Ask;
  #isBehind = false;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  begin = (): Promise<void> => this.#once(async () => {
    try {
      const page = await this.#ask('newest');
      this.lines = page.items.toReversed();
      this.older = page.next_cursor ?? null;
    } catch (refused) {
      if (!(refused instanceof ApiError) || refused.status !== 400) throw refused;
      await this.#follow('');
      this.older = null; // A leader of the version before tells stories from their beginning only.
    }
  });

  more = (): Promise<void> => this.#once(async () => {
    if (this.older === null) return;
    const page = await this.#ask(this.older);
    this.lines = [...this.lines, ...page.items.toReversed()];
    this.older = page.next_cursor ?? null;
  });

  /** What has happened since the newest line. */
  newer = (): Promise<void> => {
    this.#isBehind = this.isAsking;
    if (!this.lines.length) return this.begin();
    return this.#once(() => this.#follow(String(this.lines[0]?.revision ?? 0)));
  };

  /** All pages from a cursor on, put before what is here. */
  async #follow(from: string): Promise<void> {
    for (let cursor: string | null = from; cursor !== null; ) {
      const page: Schemas['Page_StoryLine_'] = await this.#ask(cursor);
      const known = this.lines[0]?.revision ?? 0;
      this.#put([...page.items.filter((line) => line.revision > known).toReversed(), ...this.lines]);
      cursor = page.next_cursor ?? null;
    }
  }

  #put(lines: readonly Line[]): void {
    this.lines = lines.slice(0, LINES_MAX);
    if (lines.length > LINES_MAX) this.older = `before:${this.lines.at(-1)!.revision}`;
  }

  async #once(work: () => Promise<void>): Promise<void> {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      await work();
      this.error = null;
    } catch (refused) {
      this.error = refused instanceof ApiError ? refused : new ApiError(0, { detail: String(refused) });
    }
    this.isAsking = false;
    this.hasAsked = true;
    if (!this.#isBehind) return;
    this.#isBehind = false;
    await this.newer();
  }
}
