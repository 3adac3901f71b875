import { expect, test } from 'vitest';
import { depths, graphOf, inOrder, mayRetryFrom, shapeOf, TILE, type WorkflowView } from './dag';
import { layered } from './layers';
import { directionIn, inColumns, placed, shapeIn } from './layout';

const stage = (name: string, after: string[], status = 'Waiting') => ({ name, after, status, job_id: '', waits_for: status === 'Waiting' ? after : [] });
const flow = (...stages: object[]): WorkflowView => ({ id: 'w', name: 'w', user: 'ada', status: 'Failed', submitted_at: 0, counts: {}, stages }) as unknown as WorkflowView;

test('edges lead between stages that are there, once each', () => {
  const graph = graphOf(flow(stage('a', []), stage('b', ['a', 'a', 'gone'])));
  expect(graph.edges.map((edge) => [edge.source, edge.target, edge.isWaited])).toEqual([['a', 'b', true]]);
  const later = graphOf(flow(stage('a', [], 'Completed'), stage('b', ['a', 'gone'], 'Running')));
  expect(shapeOf(later)).toBe(shapeOf(graph));
});

test('a stage is one deeper than the deepest before it; a circle does not hang the page', () => {
  const graph = graphOf(flow(stage('a', []), stage('b', ['a']), stage('c', ['a', 'b']), stage('x', ['y']), stage('y', ['x'])));
  expect(Object.fromEntries(depths(graph))).toEqual({ a: 0, b: 1, c: 2, x: 0, y: 0 });
  const points = [...inColumns(graph, 'RIGHT').values()].map((point) => `${point.x},${point.y}`);
  expect(new Set(points).size).toBe(5);
});

test('a long chain goes down in a high area, and a wide fan goes right', () => {
  const chain = graphOf(flow(...Array.from({ length: 6 }, (_, at) => stage(`s${at}`, at ? [`s${at - 1}`] : []))));
  expect(directionIn(chain, 740, 720)).toBe('DOWN');
  expect(directionIn(chain, 1600, 300)).toBe('RIGHT');
  const fan = graphOf(flow(stage('a', []), ...Array.from({ length: 8 }, (_, at) => stage(`b${at}`, ['a']))));
  expect(directionIn(fan, 740, 720)).toBe('RIGHT');
  const down = [...inColumns(chain, 'DOWN').values()];
  expect(new Set(down.map((point) => point.x)).size).toBe(1);
});

test('a retry begins where something has ended; counts come in the order of what matters', () => {
  const ended = flow(stage('a', [], 'Failed'), stage('b', ['a']));
  expect(mayRetryFrom(ended, ended.stages![0]!)).toBe(true);
  expect(mayRetryFrom({ ...ended, status: 'Running' }, ended.stages![0]!)).toBe(false);
  expect(inOrder({ Completed: 3, Failed: 1, Running: 2, Skipped: 0 }).map(([word]) => word)).toEqual(['Running', 'Failed', 'Completed']);
});

test.each([
  ['a few stages', 12, 3, 'RIGHT'],
  ['a few stages, downwards', 12, 3, 'DOWN'],
  ['more than lines are straightened for', 150, 15, 'RIGHT'],
] as const)('%s stand in layers, each behind those before it and none over another', (_name, count, width, direction) => {
  const names = Array.from({ length: count }, (_, at) => `s${at}`);
  const before = (at: number): string[] => (at < width ? [] : [`s${at - width}`, `s${at - width + ((at % width) + 1 < width ? 1 : 1 - width)}`]);
  const graph = graphOf(flow(...names.map((name, at) => stage(name, before(at))), stage('alone', [])));
  const points = placed(graph, direction, layered(shapeIn(graph, direction)));
  for (const { source, target } of graph.edges) {
    const [a, b] = [points.get(source)!, points.get(target)!];
    if (direction === 'RIGHT') expect(b.x).toBeGreaterThanOrEqual(a.x + TILE.width + 39);
    else expect(b.y).toBeGreaterThanOrEqual(a.y + TILE.height + 39);
  }
  const all = [...points.values()];
  expect(all).toHaveLength(count + 1);
  all.forEach((a, at) => all.slice(at + 1).forEach((b) => expect(Math.abs(a.x - b.x) >= TILE.width - 1 || Math.abs(a.y - b.y) >= TILE.height - 1).toBe(true)));
});
