import { expect, test } from 'vitest';
import { pieces } from './ansi';

const text = (line: string): string => pieces(line).map((each) => each.text).join('');

test('colours and weights are read, and reset', () => {
  expect(pieces('\u001b[1;31mred\u001b[0m plain \u001b[38;5;208morange\u001b[38;2;1;2;3mown')).toEqual([
    { text: 'red', bold: true, colour: 1 },
    { text: ' plain ' },
    { text: 'orange', colour: 'rgb(255 135 0)' },
    { text: 'own', colour: 'rgb(1 2 3)' },
  ]);
  expect(pieces('\u001b[7mturned')).toEqual([{ text: 'turned', colour: 0, ground: 7 }]);
});

test('every other sequence is left out, also one that the end of the line cuts', () => {
  expect(text('a\u001b[2Kb\u001b]8;;http://evil.example\u0007link\u001b]8;;\u0007c\u001b(Bd\u001b[12;5He\u001b[38;5')).toBe('ablinkcde');
  expect(text('\u001b]0;title without an end')).toBe('');
});

test('markup stays text, and what would turn the line is made visible', () => {
  expect(text('<script>alert(1)</script>')).toBe('<script>alert(1)</script>');
  expect(text('abc\u202edef\u0000\u0007')).toBe('abc⟨U+202E⟩def␀␇');
});

test('of a progress bar the last writing is kept', () => {
  expect(text(' 10%|#  |\r 50%|## |\r100%|###|\r')).toBe('100%|###|');
});

test('a line of sequences alone makes no work without end', () => {
  expect(pieces('\u001b[31m'.repeat(200_000) + 'x').length).toBeLessThan(3);
  expect(pieces('\u001b[31mx'.repeat(10_000)).length).toBeLessThanOrEqual(2001);
});
