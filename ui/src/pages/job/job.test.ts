import { expect, test } from 'vitest';
import { changesOf } from './changes';
import { cellAt, gridOf, moved } from './grid';
import { LINE_BYTES_MAX, LINES_MAX, LogWindow } from './logwindow';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test('ten thousand tasks fit into the box', () => {
  const grid = gridOf(10_000, 1040, 300);
  expect(grid.height).toBeLessThanOrEqual(300);
  expect(grid.columns * grid.rows).toBeGreaterThanOrEqual(10_000);
  expect(cellAt(grid, 10_000, grid.cell * 3 + 1, grid.cell * 2 + 1)).toBe(2 * grid.columns + 3);
  expect(cellAt(grid, 10_000, 1, 10_000)).toBe(-1);
});

test('keys move within the grid and never beyond it', () => {
  const grid = gridOf(100, 180, 300);
  expect(moved(grid, 100, 0, 'ArrowDown')).toBe(grid.columns);
  expect(moved(grid, 100, 0, 'ArrowLeft')).toBe(0);
  expect(moved(grid, 100, 5, 'End')).toBe(99);
  expect(moved(grid, 100, 5, 'PageDown')).toBe(99);
  expect(moved(grid, 100, 5, 'a')).toBeNull();
});

test('a log is cut into lines with their offsets, whatever the pieces are', () => {
  const whole = 'one\ntwö\n\nlast';
  for (let size = 1; size < 20; size++) {
    const window = new LogWindow(100);
    const given = bytes(whole);
    for (let at = 0; at < given.length; at += size) window.append(given.subarray(at, at + size));
    expect(window.shown.map((line) => [line.offset, line.text])).toEqual([[100, 'one'], [104, 'twö'], [109, ''], [110, 'last']]);
    expect(window.end).toBe(110);
  }
});

test('of a line of a megabyte the beginning is kept, and how much is missing', () => {
  const long = 'x'.repeat(1_000_000);
  const pieces = new LogWindow();
  for (let at = 0; at < long.length; at += 65_536) pieces.append(bytes(long.slice(at, at + 65_536)));
  expect(pieces.shown[0]!.text.length).toBe(LINE_BYTES_MAX);
  pieces.append(bytes('\nnext\n'));
  expect(pieces.lines.map((line) => [line.offset, line.text.length, line.left])).toEqual([[0, LINE_BYTES_MAX, 1_000_000 - LINE_BYTES_MAX], [1_000_001, 4, 0]]);
});

test('bytes that are no UTF-8 become a sign', () => {
  const window = new LogWindow();
  window.append(new Uint8Array([0x61, 0xff, 0xfe, 0x62, 10]));
  expect(window.lines[0]!.text).toBe('a\ufffd\ufffdb');
});

test('lines leave at the other end, so that a log of millions takes bounded memory', () => {
  const window = new LogWindow();
  for (let at = 0; at < 30; at++) window.append(bytes('a line\n'.repeat(1000)));
  expect(window.lines.length).toBeLessThanOrEqual(LINES_MAX);
  expect(window.start).toBe(window.lines[0]!.offset);
  expect(window.end).toBe(30_000 * 7);
  const before = window.lines.length;
  expect(window.prepend(bytes('a line\n'.repeat(10)), window.start - 70)).toBe(10);
  expect(window.lines.length).toBe(Math.min(LINES_MAX, before + 10));
});

test('what was changed in the form is what is set', () => {
  const before = { gpus: '8', time_limit: '3600s', name: 'a' };
  expect(changesOf(before, { ...before, gpus: '4', time_limit: '' }, 'env.LR = 0.1\nmax_retries=2')).toEqual({
    set: { gpus: 4, time_limit: null, 'env.LR': '0.1', max_retries: 2 },
    error: '',
  });
  expect(changesOf(before, before, 'nonsense').error).toContain('nonsense');
});
