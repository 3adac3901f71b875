/**
 * Rows of jobs, asked for in blocks as the table is scrolled, sorted and filtered by the coordinator: a hundred thousand jobs
 * are never all here. Blocks that are seen are asked again when the stream says that rows changed; a changed row that is
 * here is replaced at once, and an answer of a moment ago does not take it back.
 */
import { ApiError, ask, get, Question, type Schemas } from '../../lib/api';
import { changesOf } from '../../lib/events';
import { stream } from '../../lib/stream.svelte';
import { ToldRows } from './told';

export type Row = Schemas['JobRow'];
export interface Filter {
  status?: string;
  waiting?: boolean;
  reason?: string;
  queue?: string;
  user?: string;
  mine?: boolean;
  search?: string;
  since?: number;
  sort?: string;
}

const BLOCK = 100;
const BLOCKS_MAX = 60;
const AHEAD = 150;
const EVERY_MS = 1500;

export class JobRows {
  total = $state(0);
  /** Grows with each change; a table reads rows through `row`, which reads it. */
  version = $state(0);
  error = $state.raw<ApiError | null>(null);
  isAsking = $state(false);
  hasAnswer = $state(false);
  isLoading = $state(false);
  #blocks = new Map<number, Row[]>();
  #filter: Filter = {};
  #range: [number, number] = [0, 50];
  #abort = new AbortController();
  #asked = new Set<number>();
  /** Blocks whose rows may have moved since: shown until they are asked again. */
  #old = new Set<number>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The rows should be those of this revision, or of a later one. */
  #since = 0;
  /** The stream was opened: what changed before it did may never be told, so the next answer is not one of a moment ago. */
  #isReopened = false;
  #question = new Question(new Map());
  #told = new ToldRows();

  open(): () => void {
    this.#since = stream.revision;
    const unsubscribe = stream.subscribe((event) => {
      const changes = changesOf(event);
      if (changes) {
        this.#told.note(changes);
        this.#replace(changes.rows ?? []);
      }
      if (event.event === 'opened') this.#isReopened = true;
      if (event.event !== 'opened' && !changes?.many && !changes?.rows?.length) return;
      this.#since = Number(event.id) || 0;
      this.#later();
    });
    return () => {
      unsubscribe();
      clearTimeout(this.#timer);
      this.#abort.abort();
    };
  }

  /** Another filter or order: everything is asked anew; what is shown stays until the answer is there. */
  choose(filter: Filter): void {
    this.#filter = filter;
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#asked.clear();
    void this.#ask(this.#wanted(), true, true);
  }

  row(index: number): Row | undefined {
    void this.version;
    return this.#blocks.get(Math.floor(index / BLOCK))?.[index % BLOCK];
  }

  /** Which rows are seen. */
  show(from: number, to: number): void {
    this.#range = [from, to];
    const missing = this.#wanted(AHEAD).filter((block) => (this.#old.has(block) || !this.#blocks.has(block)) && !this.#asked.has(block));
    if (missing.length) void this.#ask(missing, false);
  }

  /** The blocks that are seen, and those within `beyond` rows of them. */
  #wanted(beyond = 0): number[] {
    const end = Math.max(this.#range[0], this.#range[1] - 1) + beyond;
    const first = Math.floor(Math.max(0, this.#range[0] - beyond) / BLOCK);
    const last = Math.floor(Math.max(0, this.hasAnswer ? Math.min(end, this.total - 1) : end) / BLOCK);
    return Array.from({ length: last - first + 1 }, (_nothing, at) => first + at);
  }

  #later(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (document.hidden) return this.#later();
      void this.#ask(this.#wanted(), true);
    }, EVERY_MS);
  }

  #replace(rows: readonly Row[]): void {
    if (!rows.length) return;
    const byId = new Map(rows.map((row) => [row.id, row]));
    for (const block of this.#blocks.values()) {
      for (const [at, row] of block.entries()) {
        const newer = byId.get(row.id);
        if (newer) block[at] = newer;
      }
    }
    this.version += 1;
  }

  /** `isNew`: rows may have moved in the other blocks; `isOther`: they are rows of another list. */
  async #ask(blocks: number[], isNew: boolean, isOther = false): Promise<void> {
    const signal = AbortSignal.any([this.#abort.signal]);
    const question = (this.#question = new Question(this.#question.known));
    const mayBeShared = !this.#isReopened;
    if (mayBeShared) ask(signal, question);
    blocks.forEach((block) => this.#asked.add(block));
    this.isAsking = true;
    try {
      const replies = await Promise.all(blocks.map((block) => this.#block(block, signal)));
      if (signal.aborted) return;
      if (isOther || this.#blocks.size > BLOCKS_MAX) this.#blocks.clear();
      if (isNew) this.#old = new Set(this.#blocks.keys());
      replies.forEach((reply, at) => this.#blocks.set(blocks[at]!, this.#told.withLater(reply)));
      blocks.forEach((block) => this.#old.delete(block));
      const last = replies.at(-1);
      if (last) [this.total, this.isLoading] = [last.total, last.loading ?? false];
      this.error = null;
      this.hasAnswer = true;
      if (isNew && !mayBeShared) this.#isReopened = false;
      if (this.isLoading || question.revision < this.#since) this.#later();
    } catch (error) {
      if (signal.aborted) return;
      this.error = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) });
      if (this.error.isPassing) this.#later();
    } finally {
      blocks.forEach((block) => this.#asked.delete(block));
      if (!signal.aborted) this.isAsking = false;
      this.version += 1;
    }
  }

  #block(block: number, signal: AbortSignal): Promise<Schemas['JobRows']> {
    const { sort, ...filter } = this.#filter;
    const query = { ...filter, sort: (sort || '-number') as '-number', offset: block * BLOCK, limit: BLOCK };
    return get('/v1/pages/jobs', { query, signal });
  }
}
