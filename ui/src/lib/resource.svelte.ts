/**
 * What a page shows of the server, kept fresh: `resource(() => get('/v1/queues'))` asks at once, again when the stream says
 * that something changed (not more often than `everyMs`), and not at all while the page is hidden. The last good value stays
 * while a new one is awaited or could not be had.
 *
 * What it asks by itself may be answered with what was made for another page a moment ago. If that is older than what the
 * stream has told, it is shown and asked again; `refresh`, after the user changed something, asks for what is so now.
 */
import { ApiError, ask, Question } from './api';
import { stream } from './stream.svelte';
import type { ServerEvent } from './sse';

export interface ResourceOptions {
  /** The shortest time between two requests; 1 s unless told otherwise. */
  everyMs?: number;
  /** Which events ask for a new value; all of them unless told otherwise. `false`: only `refresh` does. */
  when?: ((event: ServerEvent) => boolean) | false;
  /** Ask again after so long even without an event: for numbers that change without one. */
  atLeastEveryMs?: number;
}

export class Resource<T> {
  value = $state.raw<T | undefined>(undefined);
  error = $state.raw<ApiError | null>(null);
  isAsking = $state(false);
  /** When the value came (ms). */
  at = $state(0);
  #fetcher: (signal: AbortSignal) => Promise<T>;
  #options: ResourceOptions;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #began = 0;
  #abort: AbortController | null = null;
  #isWanted = false;
  /** An answer should know of this revision. */
  #since = 0;
  /** The stream was opened: what changed before it did may never be told, so the next answer is not one of a moment ago. */
  #isReopened = false;
  #question = new Question(new Map());

  constructor(fetcher: (signal: AbortSignal) => Promise<T>, options: ResourceOptions) {
    this.#fetcher = fetcher;
    this.#options = options;
  }

  /** Ask for what is so now. What was being asked is no longer wanted. */
  refresh(): Promise<void> {
    return this.#fetch(false);
  }

  async #fetch(mayBeShared: boolean): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.#began = Date.now();
    this.isAsking = true;
    this.#isWanted = false;
    const question = (this.#question = new Question(this.#question.known));
    if (mayBeShared) ask(abort.signal, question);
    try {
      const value = await this.#fetcher(abort.signal);
      if (abort.signal.aborted) return;
      this.value = value;
      this.error = null;
      this.at = Date.now();
      if (!mayBeShared) this.#isReopened = false;
      if (question.revision < this.#since) this.#isWanted = true;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.error = error instanceof ApiError ? error : new ApiError(0, { title: 'The page has an error', detail: String(error) });
      if (this.error.isPassing) this.#isWanted = true;
    }
    this.isAsking = false;
    const atLeast = this.#options.atLeastEveryMs;
    if (this.#isWanted) this.ask();
    else if (atLeast) this.#timer = setTimeout(() => this.ask(), atLeast);
  }

  /** Ask soon: at the end of the interval, once, and when the page is looked at. */
  ask(): void {
    if (this.isAsking || document.hidden) {
      this.#isWanted = true;
      return;
    }
    const wait = this.#began + (this.#options.everyMs ?? 1000) - Date.now();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#fetch(!this.#isReopened), Math.max(0, wait));
  }

  /** Begin, and return what ends it. */
  open(): () => void {
    const when = this.#options.when;
    this.#since = stream.revision;
    const unsubscribe =
      when === false
        ? () => undefined
        : stream.subscribe((event) => {
            if (when && event.event !== 'opened' && !when(event)) return;
            this.#since = Number(event.id) || 0;
            if (event.event === 'opened') this.#isReopened = true;
            this.ask();
          });
    const onVisible = (): void => {
      if (!document.hidden && this.#isWanted) this.ask();
    };
    document.addEventListener('visibilitychange', onVisible);
    void this.#fetch(true);
    return () => {
      unsubscribe();
      document.removeEventListener('visibilitychange', onVisible);
      clearTimeout(this.#timer);
      this.#abort?.abort();
      this.isAsking = false;
    };
  }
}

/**
 * A resource for as long as the component lives. `fetcher` is called again when a reactive value that it reads before its
 * first await has changed.
 */
export function resource<T>(fetcher: (signal: AbortSignal) => Promise<T>, options: ResourceOptions = {}): Resource<T> {
  const made = new Resource(fetcher, options);
  $effect(() => made.open());
  return made;
}
