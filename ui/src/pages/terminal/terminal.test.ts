import { expect, test } from 'vitest';
import { exitOf, framed, InputQueue, KIND, problemIn, sizeOf, WAITING_BYTES_MAX, WINDOW_BYTES, windowOf } from './protocol';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test('a message is a byte for its kind, and the content', () => {
  expect([...framed(KIND.input, bytes('a'))]).toEqual([0, 97]);
  expect([...sizeOf(24, 300)]).toEqual([5, 0, 24, 1, 44]);
  expect([...sizeOf(-1, 1e9)]).toEqual([5, 0, 1, 255, 255]);
});

test('no more is sent than the window allows, and a paste without end is refused', () => {
  const queue = new InputQueue();
  expect(queue.put(new Uint8Array(WINDOW_BYTES + 10))).toBe(true);
  let sent = 0;
  for (let piece = queue.take(); piece; piece = queue.take()) sent += piece.length;
  expect(sent).toBe(WINDOW_BYTES);
  queue.open(windowOf(new Uint8Array([0, 0, 0, 4])));
  expect(queue.take()?.length).toBe(4);
  expect(queue.take()).toBeNull();
  expect(queue.put(new Uint8Array(WAITING_BYTES_MAX))).toBe(false);
});

test('the last message may be anything', () => {
  expect(exitOf(bytes('{"code": 3, "signal": 9, "task_ended": true}'))).toEqual({ code: 3, signal: 9, taskEnded: true });
  for (const text of ['', '[]', '{"code": "x"}', 'null', '\u0000']) expect(exitOf(bytes(text))).toBeNull();
  expect(problemIn(bytes('{"title": "Away", "detail": 5}'))).toEqual({ title: 'Away', detail: '', hint: '' });
  expect(problemIn(bytes('nonsense')).title).toBe('The session ended');
});
