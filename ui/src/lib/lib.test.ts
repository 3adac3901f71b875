import { expect, test } from 'vitest';
import { inSlots, nextSort, sorted, visibleRange } from '../components/table';
import { age, bytes, duration, percent, shellWords } from './format';
import { CATEGORY_COUNT, categoryOf, colourOf, STATES } from './palette';
import { EventReader } from './sse';
import { short, visible } from './text';

test('an event of a stream is read whatever the pieces are', () => {
  const whole = ': hello\nretry: 1000\nid: 7\nevent: changes\ndata: {"a":\ndata: 1}\n\nid: 8\n\n';
  for (const size of [1, 3, 1000]) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < whole.length; at += size) found.push(...reader.take(whole.slice(at, at + size)));
    expect(found).toEqual([{ id: '7', event: 'changes', data: '{"a":\n1}' }]);
    expect(reader.lastId).toBe('8');
    expect(reader.retryMs).toBe(1000);
  }
});

test('marks that turn the direction of writing are seen', () => {
  expect(visible('a\u200fb\u2066c\u001b[0m')).toBe('a⟨U+200F⟩b⟨U+2066⟩c␛[0m');
  expect(short('x'.repeat(1_000_000), 10)).toBe('xxxxxxxxxx … 999,990 more characters');
});

test('sizes, times and shares have units', () => {
  expect([bytes(0), bytes(1536), bytes(64 * 2 ** 30)]).toEqual(['0 B', '1.5 KiB', '64 GiB']);
  expect([duration(0.25), duration(75), duration(260), duration(7500), duration(4 * 86_400 + 3 * 3600)]).toEqual(['0.3 s', '75 s', '4 min 20 s', '2 h 5 min', '4 d 3 h']);
  expect([age(0.4), age(7), age(333), age(7500), age(4 * 86_400 + 3 * 3600)]).toEqual(['0 s', '7 s', '5 min', '2 h', '4 d']);
  expect([percent(0), percent(0.034), percent(0.5)]).toEqual(['0%', '3.4%', '50%']);
  expect(shellWords(['sh', '-c', "echo 'a b'"])).toBe("sh -c 'echo '\\''a b'\\'''");
});

test('a table sorts numbers as numbers, and what has no value comes last', () => {
  const rows = [{ a: 10 }, { a: null }, { a: 9 }];
  const by = (sort: string) => sorted(rows, sort, (row) => row.a).map((row) => row.a);
  expect([by('a'), by('-a')]).toEqual([[9, 10, null], [10, 9, null]]);
  expect(sorted(['n10', 'n9'], 'x', (row) => row)).toEqual(['n9', 'n10']);
  expect(['', 'a', '-a'].map((sort) => nextSort(sort, 'a'))).toEqual(['a', '-a', '']);
});

test('a table of a hundred thousand rows draws those that are seen', () => {
  expect(visibleRange(28 * 50_000, 560, 28, 100_000, 10)).toEqual([49_990, 50_030]);
  expect(visibleRange(0, 560, 28, 3, 10)).toEqual([0, 3]);
  expect(visibleRange(1e9, 560, 28, 3, 10)[1]).toBe(3);
});

test('a row that stays in sight keeps its element', () => {
  const [before, after] = [inSlots(100, 7), inSlots(103, 7)];
  expect([...before].sort((a, b) => a - b)).toEqual([100, 101, 102, 103, 104, 105, 106]);
  expect(after.filter((index, slot) => before[slot] === index)).toHaveLength(4);
});

test('states have a colour of their own in both themes, and a name keeps its category', () => {
  for (const theme of ['light', 'dark'] as const) expect(new Set(STATES.map((state) => colourOf(state, theme))).size).toBe(STATES.length);
  expect(categoryOf('alice')).toBe(categoryOf('alice'));
  expect(categoryOf('x')).toBeLessThan(CATEGORY_COUNT);
});
