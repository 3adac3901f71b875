/**
 * What a plan would do, as marks for the map: where a job would go, whom it would evict, or why it would wait.
 */

import type { components } from '../../lib/schema';
import { natural } from './tree';

export type PlanReply = components['schemas']['PlanReply'];

export interface Mark {
  kind: 'placed' | 'evicted' | 'both'; // both: evicted to make room for what is placed there
  text: string;
  sign: string; // in the cell: the rank of the member
}

export interface PlanOverlay {
  marks: Map<string, Map<number, Mark>>; // by node, then device; -1: the node, for tasks without devices
  nodes: string[]; // in natural order
  verdict: 'now' | 'waits' | 'never';
  sentence: string;
}

export function overlayOf(reply: PlanReply): PlanOverlay {
  const marks: PlanOverlay['marks'] = new Map();
  for (const each of reply.evictions) {
    const text = `${each.task}${each.name ? ` ${each.name}` : ''} would be evicted`;
    for (const device of orNode(each.devices)) put(marks, each.node, device, { kind: 'evicted', text, sign: '' });
  }
  for (const each of reply.placements) {
    const text = `${each.task} would be placed here`;
    const sign = String(each.index ?? '');
    for (const device of orNode(each.devices)) put(marks, each.node, device, { kind: 'placed', text, sign });
  }
  const verdict = reply.exit === 0 ? 'now' : reply.exit === 3 ? 'waits' : 'never';
  return { marks, nodes: [...marks.keys()].sort(natural), verdict, sentence: sentenceOf(reply, verdict) };
}

/** One sentence that says what would happen. */
export function sentenceOf(reply: PlanReply, verdict: PlanOverlay['verdict']): string {
  if (verdict === 'never') return 'It can never start on this cluster.';
  if (verdict === 'waits' && !reply.placements.length) return 'It would wait.';
  const nodes = new Set(reply.placements.map((each) => each.node)).size;
  const devices = reply.placements.reduce((sum, each) => sum + each.devices.length, 0);
  const where = `${count(reply.placements.length, 'task')} on ${count(nodes, 'node')}${devices ? `, ${count(devices, 'GPU')}` : ''}`;
  const jobs = new Set(reply.evictions.map((each) => each.job)).size;
  const evicts = reply.evictions.length ? `, after evicting ${count(reply.evictions.length, 'task')} of ${count(jobs, 'job')}` : '';
  const rest = verdict === 'waits' ? ' The rest would wait.' : '';
  return `It would start now: ${where}${evicts}.${rest}`;
}

export function count(number: number, noun: string): string {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

function orNode(devices: number[] | undefined): number[] {
  return devices?.length ? devices : [-1];
}

function put(marks: PlanOverlay['marks'], node: string, device: number, mark: Mark): void {
  const ofNode = marks.get(node) ?? new Map<number, Mark>();
  const before = ofNode.get(device);
  const both = before && before.kind !== mark.kind;
  ofNode.set(device, both ? { kind: 'both', text: `${before.text}; ${mark.text}`, sign: mark.sign } : mark);
  marks.set(node, ofNode);
}
