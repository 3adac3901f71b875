import { expect, test } from 'vitest';
import { ApiError } from '../../lib/api';
import { LINES_MAX, StoryLines, type Line } from './story.svelte';

const line = (revision: number): Line => ({ revision, at: revision, event: 'TaskPlaced', text: `line ${revision}` });

/** A story of so many lines, two a page, as a coordinator answers. */
class Story {
  asked: string[] = [];
  length: number;
  constructor(length: number) {
    this.length = length;
  }
  ask = (cursor: string): Promise<{ items: Line[]; next_cursor: string | null }> => {
    this.asked.push(cursor);
    const isForward = /^\d+$/.test(cursor);
    const before = cursor === 'newest' ? this.length + 1 : Number(cursor.replace('before:', ''));
    const first = isForward ? Number(cursor) + 1 : Math.max(1, before - 2);
    const items = [first, first + 1].filter((each) => each <= this.length && (isForward || each < before)).map(line);
    const rest = isForward ? (items.length === 2 ? String(first + 1) : null) : first > 1 ? `before:${first}` : null;
    return Promise.resolve({ items, next_cursor: rest });
  };
}

const revisions = (lines: StoryLines): number[] => lines.lines.map((each) => each.revision);

test('the newest lines come first, and older ones on demand', async () => {
  const lines = new StoryLines(new Story(5).ask);
  await lines.begin();
  expect(revisions(lines)).toEqual([5, 4]);
  await lines.more();
  expect([revisions(lines), lines.older]).toEqual([[5, 4, 3, 2], 'before:2']);
  await lines.more();
  expect([revisions(lines), lines.older]).toEqual([[5, 4, 3, 2, 1], null]);
  await lines.more();
  expect(revisions(lines)).toHaveLength(5);
});

test('what came since is put before, however much it is, and once', async () => {
  const story = new Story(3);
  const lines = new StoryLines(story.ask);
  await lines.begin();
  story.length = 8;
  await Promise.all([lines.newer(), lines.newer()]);
  expect(revisions(lines)).toEqual([8, 7, 6, 5, 4, 3, 2]);
  expect(lines.older).toBe('before:2');
});

test('the oldest lines leave when there are more than are kept, and can be asked for again', async () => {
  const story = new Story(2);
  const lines = new StoryLines(story.ask);
  await lines.begin();
  story.length = LINES_MAX + 2;
  await lines.newer();
  expect(lines.lines).toHaveLength(LINES_MAX);
  expect(lines.older).toBe('before:3');
});

test('a story that could not be read is begun again', async () => {
  let isAway = true;
  const story = new Story(3);
  const lines = new StoryLines((cursor) => (isAway ? Promise.reject(new Error('away')) : story.ask(cursor)));
  await lines.begin();
  expect([lines.error?.message.includes('away'), revisions(lines)]).toEqual([true, []]);
  isAway = false;
  await lines.newer();
  expect([lines.error, revisions(lines)]).toEqual([null, [3, 2]]);
});

test('a leader that tells stories from their beginning only is asked for all of it', async () => {
  const story = new Story(5);
  const lines = new StoryLines((cursor) => (cursor === 'newest' ? Promise.reject(new ApiError(400, {})) : story.ask(cursor || '0')));
  await lines.begin();
  expect([lines.error, revisions(lines), lines.older]).toEqual([null, [5, 4, 3, 2, 1], null]);
  story.length = 6;
  await lines.newer();
  expect(revisions(lines)).toEqual([6, 5, 4, 3, 2, 1]);
});
