/** The stages of a workflow as a graph: who follows whom, how long each took, and what its node had loaded already. */
import type { components } from '../../lib/schema';

export type WorkflowView = components['schemas']['WorkflowView'];
export type StageView = components['schemas']['StageView'];

export interface StageNode {
  id: string; // the stage's name, which is unique in its workflow
  stage: StageView;
}

export interface StageEdge {
  id: string;
  source: string;
  target: string;
  isWaited: boolean; // the target waits for it
}

export interface Graph {
  nodes: StageNode[];
  edges: StageEdge[];
}

export const TILE = { width: 176, height: 58 };
export const ORDER = ['Running', 'Assigned', 'Pending', 'Waiting', 'Failed', 'Cancelled', 'Skipped', 'Completed'] as const;

/** Stages and their edges; an edge from a stage that is not listed is left out. */
export function graphOf(flow: WorkflowView): Graph {
  const stages = flow.stages ?? [];
  const names = new Set(stages.map((stage) => stage.name));
  const edges = stages.flatMap((stage) =>
    [...new Set(stage.after ?? [])]
      .filter((before) => names.has(before))
      .map((before) => ({
        id: `${before}\u0000${stage.name}`,
        source: before,
        target: stage.name,
        isWaited: (stage.waits_for ?? []).includes(before),
      })),
  );
  return { nodes: stages.map((stage) => ({ id: stage.name, stage })), edges };
}

/** What changes the shape: a layout is made again only when this does. */
export function shapeOf(graph: Graph): string {
  return JSON.stringify([graph.nodes.map((node) => node.id), graph.edges.map((edge) => edge.id)]);
}

/** Rows by depth, for as long as no layout is there, and for lists: a stage is one deeper than the deepest before it. */
export function depths(graph: Graph): Map<string, number> {
  const before = new Map<string, string[]>(graph.nodes.map((node) => [node.id, []]));
  for (const edge of graph.edges) before.get(edge.target)?.push(edge.source);
  const found = new Map<string, number>();
  const waiting = new Set(before.keys());
  while (waiting.size) {
    const ready = [...waiting].filter((id) => before.get(id)!.every((each) => found.has(each)));
    if (!ready.length) break; // A circle cannot be submitted; if there were one, it ends here.
    for (const id of ready) {
      waiting.delete(id);
      found.set(id, Math.max(-1, ...before.get(id)!.map((each) => found.get(each)!)) + 1);
    }
  }
  for (const id of waiting) found.set(id, 0);
  return found;
}

/** How long a stage has run; null: it has not begun. */
export function runS(stage: StageView, now: number): number | null {
  if (!stage.started_at) return null;
  return Math.max(0, (stage.ended_at ?? now) - stage.started_at);
}

export const isEnded = (status: string): boolean => ['Completed', 'Failed', 'Cancelled'].includes(status);

/** Stages of which a retry may begin: those that have ended, in a workflow that has. */
export function mayRetryFrom(flow: WorkflowView, stage: StageView): boolean {
  return isEnded(flow.status) && stage.status !== 'Waiting';
}

/** Counts in the order in which a reader cares. */
export function inOrder(counts: Record<string, number>): [string, number][] {
  const rank = (word: string) => {
    const at = ORDER.findIndex((each) => each.toLowerCase() === word.toLowerCase());
    return at < 0 ? ORDER.length : at;
  };
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => rank(a) - rank(b));
}
