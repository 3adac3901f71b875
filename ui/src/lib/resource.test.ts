import { beforeEach, expect, test, vi } from 'vitest';
import { get } from './api';
import { Resource } from './resource.svelte';
import type { ServerEvent } from './sse';

const told = vi.hoisted(() => ({ handlers: new Set<(event: ServerEvent) => void>(), revision: 0 }));
vi.mock('./stream.svelte', () => ({
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

const tell = (revision: number): void => {
  told.revision = revision;
  told.handlers.forEach((handler) => handler({ id: String(revision), event: 'changes', data: '{}' }));
};
const fetched = vi.fn<(url: string, init: RequestInit) => Promise<Response>>();
const reply = (revision: number, etag = `"${revision}"`): Response =>
  new Response(JSON.stringify({ revision }), { headers: { etag, 'phalanx-revision': String(revision) } });
const sent = (at: number): Headers => new Headers(fetched.mock.calls[at]![1].headers);

beforeEach(() => {
  vi.useFakeTimers();
  told.handlers.clear();
  told.revision = 0;
  fetched.mockReset();
  vi.stubGlobal('fetch', fetched);
  vi.stubGlobal('document', { hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined });
});

const map = (): Resource<{ revision: number }> => new Resource((signal) => get('/v1/pages/map', { signal }), { everyMs: 1000 });

test('an answer that is older than what the stream has told is asked for again', async () => {
  fetched.mockImplementation(() => Promise.resolve(reply(fetched.mock.calls.length < 3 ? 5 : 7)));
  const made = map();
  const close = made.open();
  await vi.advanceTimersByTimeAsync(10);
  tell(7);
  await vi.advanceTimersByTimeAsync(1000);
  expect([fetched.mock.calls.length, made.value?.revision]).toEqual([2, 5]);
  await vi.advanceTimersByTimeAsync(1000);
  expect([fetched.mock.calls.length, made.value?.revision]).toEqual([3, 7]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(fetched.mock.calls.length).toBe(3);
  close();
});

test('a page that opens after a change asks again if it is given an answer from before', async () => {
  told.revision = 9;
  fetched.mockImplementation(() => Promise.resolve(reply(fetched.mock.calls.length < 2 ? 8 : 9)));
  const close = map().open();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(fetched.mock.calls.length).toBe(2);
  close();
});

test('what is known is not sent again, and stays the same object', async () => {
  fetched.mockImplementation(() => Promise.resolve(fetched.mock.calls.length < 2 ? reply(5) : new Response(null, { status: 304, headers: { 'phalanx-revision': '5' } })));
  const made = map();
  const close = made.open();
  await vi.advanceTimersByTimeAsync(10);
  const first = made.value;
  tell(5);
  await vi.advanceTimersByTimeAsync(1000);
  expect(fetched.mock.calls.length).toBe(2);
  expect([sent(1).get('phalanx-read'), sent(1).get('if-none-match')]).toEqual(['shared', '"5"']);
  expect(made.value).toBe(first);
  close();
});

test('after the user has changed something, what is so now is asked for', async () => {
  fetched.mockImplementation(() => Promise.resolve(reply(5)));
  const made = map();
  const close = made.open();
  await vi.advanceTimersByTimeAsync(10);
  await made.refresh();
  expect([sent(0).get('phalanx-read'), sent(1).get('phalanx-read')]).toEqual(['shared', null]);
  close();
});

test('a stream that was opened again has an answer made for this page', async () => {
  fetched.mockImplementation(() => Promise.resolve(reply(5)));
  const close = map().open();
  await vi.advanceTimersByTimeAsync(10);
  told.handlers.forEach((handler) => handler({ id: '5', event: 'opened', data: '' }));
  await vi.advanceTimersByTimeAsync(1000);
  tell(5);
  await vi.advanceTimersByTimeAsync(1000);
  expect([0, 1, 2].map((at) => sent(at).get('phalanx-read'))).toEqual(['shared', null, 'shared']);
  close();
});
