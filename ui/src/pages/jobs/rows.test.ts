import { beforeEach, expect, test, vi } from 'vitest';
import type { ServerEvent } from '../../lib/sse';
import { JobRows } from './rows.svelte';

const told = vi.hoisted(() => ({ handlers: new Set<(event: ServerEvent) => void>(), revision: 0 }));
vi.mock('../../lib/stream.svelte', () => ({
  stream: {
    get revision() {
      return told.revision;
    },
    subscribe(handler: (event: ServerEvent) => void) {
      told.handlers.add(handler);
      return () => told.handlers.delete(handler);
    },
  },
}));

const row = (status: string): object => ({ id: 'a', number: 1, status, counts: {} });
const tell = (revision: number, status: string): void => {
  told.revision = revision;
  const data = JSON.stringify({ at: 1, revision, tasks: {}, gpus: {}, rows: [row(status)] });
  told.handlers.forEach((handler) => handler({ id: String(revision), event: 'changes', data }));
};
/** What the coordinator answers next: the state of the row, and of which revisions the list and its rows are. */
let answer = { status: 'Pending', revision: 5, rows_revision: 5 as number | undefined };
const fetched = vi.fn<(url: string, init: RequestInit) => Promise<Response>>();
const shown = (rows: JobRows): string | undefined => rows.row(0)?.status;

beforeEach(() => {
  vi.useFakeTimers();
  told.handlers.clear();
  told.revision = 0;
  fetched.mockReset();
  fetched.mockImplementation(() => {
    const { status, ...made } = answer;
    const body = JSON.stringify({ at: 1, total: 1, offset: 0, rows: [row(status)], ...made });
    return Promise.resolve(new Response(body, { headers: { 'phalanx-revision': String(made.revision) } }));
  });
  vi.stubGlobal('fetch', fetched);
  vi.stubGlobal('document', { hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined });
});

async function opened(): Promise<JobRows> {
  answer = { status: 'Pending', revision: 5, rows_revision: 5 };
  const rows = new JobRows();
  rows.open();
  rows.choose({});
  await vi.advanceTimersByTimeAsync(10);
  expect(shown(rows)).toBe('Pending');
  return rows;
}

test('an answer that is older than what the stream told of a row does not take it back', async () => {
  const rows = await opened();
  tell(7, 'Running');
  expect(shown(rows)).toBe('Running');
  await vi.advanceTimersByTimeAsync(1600); // the same answer once more, which was made for another page
  expect([fetched.mock.calls.length, shown(rows)]).toEqual([2, 'Running']);
  answer = { status: 'Completed', revision: 8, rows_revision: 8 };
  await vi.advanceTimersByTimeAsync(1600);
  expect([fetched.mock.calls.length, shown(rows)]).toEqual([3, 'Completed']);
});

test('rows that are newer than their list and than what was told are taken', async () => {
  const rows = await opened();
  tell(7, 'Running');
  answer = { status: 'Completed', revision: 5, rows_revision: 8 };
  await vi.advanceTimersByTimeAsync(1600);
  expect(shown(rows)).toBe('Completed');
});

test('of a leader of the version before, the revision of the list counts', async () => {
  const rows = await opened();
  tell(7, 'Running');
  answer = { status: 'Pending', revision: 6, rows_revision: undefined };
  await vi.advanceTimersByTimeAsync(1600);
  expect(shown(rows)).toBe('Running');
});
