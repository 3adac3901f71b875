import { expect, test } from 'vitest';
import { Colouring } from './colours';
import { cellBox, cellsOf, hit, layOut, moved } from './layout';
import { overlayOf, type PlanReply } from './overlay';
import { changed, madeOf, withLater, type MapView } from './source';
import { domainAt, NO_DOMAIN, nodesBelow } from './tree';

function view(nodes: number, racks: number, devices = 8): MapView {
  return {
    at: 0,
    revision: 1,
    layers: ['block', 'rack'],
    nodes: Array.from({ length: nodes }, (_, at) => ({ name: `n${at + 1}`, path: [`b${at % 2}`, `r${at % racks}`], devices, kind: 'h100', held: at ? [] : [7, 7], task: at ? [] : [0, 1] })),
    holders: [{ number: 7, id: 'j7', user: 'ada', name: 'train', queue: 'q', tasks: 2, first: 1, step: 2 }],
  } as MapView;
}

test('nodes stand in their domains in natural order, and free devices are summed up', () => {
  const { root, nodes } = madeOf(view(12, 4));
  expect(root.children.map((child) => child.name)).toEqual(['b0', 'b1']);
  expect(nodes.map((node) => node.name).slice(0, 3)).toEqual(['n1', 'n2', 'n3']);
  expect([root.devices, root.free, root.nodeCount]).toEqual([96, 94, 12]);
  expect(domainAt(root, ['b0', 'r0', 'gone']).path).toEqual(['b0', 'r0']);
  expect(nodesBelow(domainAt(root, ['b1']))).toHaveLength(6);
});

test('a node without a label stands last, and tasks are called by their index', () => {
  const made = view(3, 1);
  made.nodes[1]!.path = [];
  const { root, nodes } = madeOf(made);
  expect(root.children.at(-1)!.name).toBe(NO_DOMAIN);
  expect(nodes[0]!.devices.slice(0, 3).map((device) => device.task)).toEqual(['7.1', '7.3', '']);
});

test('a node without GPUs is counted as such beside nodes that have some, and by job where none has', () => {
  const made = view(2, 1);
  made.nodes[1] = { name: 'cpu', path: ['b0', 'r0'], cores: 8, cores_free: 4, jobs: [7] } as never;
  const cluster = madeOf(made);
  const legend = (among: typeof cluster) => new Colouring(among, 'job').legend(among.nodes).map((entry) => [entry.paint.key, entry.count]);
  expect(legend(cluster)).toEqual([['7', 2], ['no-gpus', 1], ['free', 6]]);
  expect(new Colouring(cluster, 'health').legend(cluster.nodes).map((entry) => [entry.paint.text, entry.count])).toEqual([['healthy', 8], ['healthy, no GPUs', 1]]);
  made.nodes.splice(0, 1);
  expect(legend(madeOf(made))).toEqual([['7', 1]]);
});

test('a change replaces nodes, removes them, and forgets who holds nothing', () => {
  const before = view(3, 1);
  const after = changed(before, { at: 1, revision: 2, tasks: {}, removed: ['n1'], nodes: [{ name: 'n2', devices: 1, held: [9] }], holders: [{ number: 9, id: 'j9', user: 'bob' }] } as never);
  expect(after.nodes.map((node) => node.name).sort()).toEqual(['n2', 'n3']);
  expect(after.holders.map((holder) => holder.number)).toEqual([9]);
  expect(changed(before, { at: 1, revision: 2, tasks: {} } as never)).toBe(before);
});

test.each([[1, 1], [16, 4], [200, 10], [1000, 50]])('%i nodes in %i racks fit, and no tiles overlap', (nodes, racks) => {
  const layout = layOut(madeOf(view(nodes, racks)).root, 1100, 800);
  expect(layout.nodes).toHaveLength(nodes);
  expect(layout.width).toBeLessThanOrEqual(1100);
  expect(layout.height).toBeLessThanOrEqual(800);
  const corners = new Set<string>();
  for (const box of layout.nodes) {
    expect(corners.has(`${box.x},${box.y}`)).toBe(false);
    corners.add(`${box.x},${box.y}`);
    const last = cellBox(layout, box, cellsOf(box.node) - 1);
    expect(last.x + last.w).toBeLessThanOrEqual(box.x + box.w);
    expect(last.y + last.h).toBeLessThanOrEqual(box.y + box.h);
  }
});

test('ten thousand nodes are laid out in no time, higher than the area', () => {
  const began = performance.now();
  const layout = layOut(madeOf(view(10_000, 500)).root, 1100, 700);
  expect(layout.nodes).toHaveLength(10_000);
  expect(layout.width).toBeLessThanOrEqual(1100);
  expect(performance.now() - began).toBeLessThan(2000);
});

test('the cell under a point is the cell that was drawn there, and arrows lead from cell to cell', () => {
  const layout = layOut(madeOf(view(16, 4)).root, 1000, 700);
  const box = layout.nodes[5]!;
  const cell = cellBox(layout, box, 6);
  expect(hit(layout, cell.x + 1, cell.y + 1).place).toEqual({ node: 5, device: 6 });
  const domain = layout.domains[1]!;
  expect(hit(layout, domain.x + 4, domain.y + 2).domain).toBe(domain.domain);
  expect(moved(layout, { node: 5, device: 0 }, 1, 0)).toEqual({ node: 5, device: 1 });
  expect(moved(layout, { node: 5, device: 0 }, 0, 1)).toEqual({ node: 5, device: 4 });
  let place = { node: 0, device: 0 };
  for (let step = 0; step < 500; step++) place = moved(layout, place, 1, 0);
  expect(moved(layout, place, 1, 0)).toEqual(place);
});

test('every way of colouring has a word for every cell, and a legend that counts them all', () => {
  const cluster = madeOf(view(6, 2));
  cluster.nodes[1]!.drained = true;
  cluster.nodes[2]!.status = 'Offline';
  cluster.nodes[3]!.devices[0]!.broken = 'out of service';
  for (const by of ['job', 'user', 'queue', 'usage', 'health'] as const) {
    const legend = new Colouring(cluster, by).legend(cluster.nodes);
    expect(legend.reduce((sum, entry) => sum + entry.count, 0)).toBe(48);
    expect(legend.every((entry) => entry.paint.text)).toBe(true);
  }
  expect(new Colouring(cluster, 'user').legend(cluster.nodes).find((entry) => entry.paint.text === 'ada')!.count).toBe(2);
});

test('a plan marks where tasks would go and who would leave', () => {
  const reply = {
    exit: 0,
    reasons: [],
    evictions: [{ task: '7.1', job: '7', node: 'n1', devices: [0, 1], name: 'train' }],
    placements: [{ task: 'new.0', node: 'n1', devices: [1, 2], index: 0 }, { task: 'new.1', node: 'n2', devices: [], index: 1 }],
  } as unknown as PlanReply;
  const found = overlayOf(reply);
  expect([0, 1, 2].map((device) => found.marks.get('n1')!.get(device)!.kind)).toEqual(['evicted', 'both', 'placed']);
  expect(found.marks.get('n2')!.get(-1)!.sign).toBe('1');
  expect(found.sentence).toBe('It would start now: 2 tasks on 2 nodes, 2 GPUs, after evicting 1 task of 1 job.');
  expect(overlayOf({ ...reply, exit: 4 }).verdict).toBe('never');
});

test('an answer that is older than what the stream told is brought up to it', () => {
  const told = (revision: number, held: number) => ({ at: 1, revision, tasks: {}, nodes: [{ name: 'n2', devices: 1, held: [held] }], holders: [{ number: held, id: `j${held}`, user: 'bob' }] }) as never;
  const after = withLater(view(2, 1), [told(1, 5), told(2, 8), told(3, 9)]);
  expect(after.nodes.find((node) => node.name === 'n2')?.held).toEqual([9]);
  expect(after.revision).toBe(3);
  expect(withLater(view(2, 1), [told(1, 5)]).nodes.find((node) => node.name === 'n2')?.held).toEqual([]);
});
