import { expect, test } from 'vitest';
import { inRows, lanesOf, next, seenLanes, spanAt, type Span } from './lanes';
import { instantOf, panned, ticks, xOf, zoomed } from './scale';
import { laidOut, type TimesView } from './source';

const span = (task: string, from: number, to: number | null, lane = 'n1'): Span => ({
  kind: 'run', from, to, lane, task, job: task.split('.')[0]!, name: '', user: '', status: 'Running', node: lane, devices: [], limit: null, text: '',
});

test('spans that overlap stand in rows, and a row is used again', () => {
  const rows = inRows([span('1', 0, 10), span('2', 5, null), span('3', 10, 20), span('4', 12, 30)], 100);
  expect(rows.map((each) => [each.span.task, each.row])).toEqual([['1', 0], ['2', 1], ['3', 0], ['4', 2]]);
});

test('lanes stand below each other and are found by where they stand', () => {
  const lanes = lanesOf(Array.from({ length: 1000 }, (_, at) => `n${at}`), [span('1', 0, 10, 'n500')], 100);
  const lane = lanes[500]!;
  expect(seenLanes(lanes, lane.top, lane.top + 1)[0]!.name).toBe('n500');
  expect(spanAt(lanes, 5, lane.top + 2, 0, 100)?.task).toBe('1');
  expect(spanAt(lanes, 50, lane.top + 2, 0, 100)).toBeNull();
  expect(next(lanes, null, 0, 1)?.task).toBe('1');
});

test('keys lead from span to span and stay at the ends', () => {
  const lanes = lanesOf(['a', 'b'], [span('1', 0, 10, 'a'), span('2', 20, 30, 'a'), span('3', 19, 40, 'b')], 100);
  const first = next(lanes, null, 1, 0);
  const second = next(lanes, first, 1, 0);
  expect([first?.task, second?.task, next(lanes, second, 1, 0)?.task, next(lanes, second, 0, 1)?.task]).toEqual(['1', '2', '2', '3']);
});

test('the instant under the pointer stays where it is', () => {
  const range = { from: 1000, to: 2000 };
  const closer = zoomed(range, 0.5, 1250);
  expect(xOf(1250, closer, 800)).toBeCloseTo(xOf(1250, range, 800));
  expect(instantOf(xOf(1700, range, 800), range, 800)).toBeCloseTo(1700);
  expect(zoomed(range, 1e-9, 1500).to - zoomed(range, 1e-9, 1500).from).toBeCloseTo(20);
  expect(panned(range, 10)).toEqual({ from: 1010, to: 2010 });
});

test.each([30, 3600, 86_400, 30 * 86_400, 390 * 86_400])('a range of %i s has a readable number of round ticks', (seconds) => {
  const found = ticks({ from: 1.7e9, to: 1.7e9 + seconds }, 1000);
  expect(found.length).toBeGreaterThan(1);
  expect(found.length).toBeLessThanOrEqual(12);
  expect(new Set(found.map((tick) => tick.at)).size).toBe(found.length);
});

test('the future stands on the nodes that are kept, behind what may run before', () => {
  const view = {
    at: 100, since: 0, until: 100, revision: 1, left_out: false,
    bars: [{ number: 2, task: 1, attempt: 2, node: 'n2', started_at: 50, limit_at: 300 }],
    holders: [{ number: 2, id: 'j2', user: 'ada', name: 'x', tasks: 3, first: 1, step: 1 }, { number: 3, id: 'j3', user: 'ada', name: 'head' }],
    future: [{ number: 3, id: 'j3', nodes: ['n1', 'n2'], at: 300, passes_s: 60, text: 'kept' }],
  } as unknown as TimesView;
  const byNode = laidOut(view, 'node');
  expect(byNode.names).toEqual(['n1', 'n2']);
  expect(byNode.spans.map((each) => [each.kind, each.lane, each.task])).toEqual([['run', 'n2', '2.2'], ['backfill', 'n1', '3'], ['kept', 'n1', '3'], ['backfill', 'n2', '3'], ['kept', 'n2', '3']]);
  expect(byNode.spans[1]!.to).toBe(160);
  expect(laidOut(view, 'job').names).toEqual(['3', '2']);
});
