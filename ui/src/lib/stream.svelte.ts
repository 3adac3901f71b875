/**
 * The stream of this page: what changed in the cluster. Pages subscribe to topics and ask again for what they show; see
 * `resource.svelte.ts`. A stream that broke is opened again with Last-Event-ID, at growing intervals, and the shell says
 * since when what is shown is stale. If this coordinator does not come back, the page moves to another one.
 */
import { ApiError, request } from './api';
import { session } from './session.svelte';
import { EventReader, type ServerEvent } from './sse';

const PATH = '/v1/pages/changes';
/** No byte for so long (the server sends a comment every 15 s): the connection is dead without having said so. */
const SILENT_MS = 40_000;
/** A hidden page gives its connection back after so long, for a browser opens only six to one place: six open tabs. */
const HIDDEN_MS = 30_000;
const WAIT_MS = [200, 500, 1000, 2000, 5000];
/** Failures in a row after which the page goes to another coordinator. */
const FAILURES_BEFORE_MOVING = 4;

type Handler = (event: ServerEvent) => void;

class Stream {
  /** Since when nothing was heard (ms), or null while the stream is open. */
  staleSince = $state<number | null>(null);
  /** Why, in one sentence. */
  trouble = $state('');
  #handlers = new Set<Handler>();
  #lastId = '';
  #abort: AbortController | null = null;

  /** Of the state that the page was told of last; 0 if it was told nothing. */
  get revision(): number {
    return Number(this.#lastId) || 0;
  }

  /** Called with each event until the returned function is called. */
  subscribe(handler: Handler): () => void {
    this.#handlers.add(handler);
    return () => this.#handlers.delete(handler);
  }

  /** Keep the stream open for as long as the login lasts. */
  async run(): Promise<void> {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    for (let failures = 0; !abort.signal.aborted && session.status === 'in'; ) {
      await visible(abort.signal);
      try {
        await this.#follow(abort.signal, () => (failures = 0));
        if (document.hidden) continue;
        failures += 1; // Closed, such as by a coordinator that stops.
      } catch (error) {
        if (abort.signal.aborted) return;
        if (document.hidden) continue; // It goes on when it is looked at again.
        failures += 1;
        if (error instanceof ApiError && error.status === 410) this.#lastId = ''; // Too much has changed since: all is asked anew.
        this.trouble = error instanceof ApiError ? error.message : 'the connection was cut';
      }
      this.staleSince ??= Date.now();
      if (failures >= FAILURES_BEFORE_MOVING && (await this.#moved())) return;
      await pause(WAIT_MS[Math.min(failures, WAIT_MS.length) - 1]!, abort.signal);
    }
  }

  stop(): void {
    this.#abort?.abort();
  }

  async #follow(signal: AbortSignal, opened: () => void): Promise<void> {
    const once = new AbortController();
    const give = (): void => once.abort();
    signal.addEventListener('abort', give);
    let watchdog = setTimeout(give, SILENT_MS);
    let rest = 0;
    const seen = (): void => {
      clearTimeout(rest);
      if (document.hidden) rest = window.setTimeout(give, HIDDEN_MS);
    };
    document.addEventListener('visibilitychange', seen);
    seen();
    try {
      const headers: Record<string, string> = this.#lastId ? { 'Last-Event-ID': this.#lastId } : {};
      const response = await request(PATH, { headers, signal: once.signal });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      const events = new EventReader();
      const note = (): void => void (this.#lastId = events.lastId || this.#lastId);
      opened();
      this.staleSince = null;
      this.trouble = '';
      this.#give({ id: this.#lastId, event: 'opened', data: '' });
      for (;;) {
        const { value, done } = await reader.read();
        clearTimeout(watchdog);
        watchdog = setTimeout(give, SILENT_MS);
        if (done) return;
        for (const event of events.take(value)) this.#give(event);
        note();
      }
    } finally {
      clearTimeout(watchdog);
      clearTimeout(rest);
      document.removeEventListener('visibilitychange', seen);
      signal.removeEventListener('abort', give);
      once.abort();
    }
  }

  #give(event: ServerEvent): void {
    for (const handler of this.#handlers) handler(event);
  }

  /** Whether the page is on its way to another coordinator, one that answers. */
  async #moved(): Promise<boolean> {
    for (const other of session.login?.coordinators ?? []) {
      if (new URL(other).origin === location.origin) continue;
      try {
        // Only whether somebody answers there: the answer itself is not ours to read.
        await fetch(new URL('/livez', other), { mode: 'no-cors', credentials: 'omit', signal: AbortSignal.timeout(3000) });
      } catch {
        continue;
      }
      session.moveTo(other);
      return true;
    }
    return false;
  }
}

/** Until the page is looked at, or the signal says that it need not go on. */
function visible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      signal.removeEventListener('abort', look);
      resolve();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look);
    look();
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

export const stream = new Stream();
