/**
 * What a button can do about a fix that `why` has tried: change the job in place, submit it again with the change, release it,
 * resume a node. Fixes that need more than that, or a right that the user does not have, have no button; their command is shown.
 */
import { post, type Schemas } from '../../lib/api';
import { session } from '../../lib/session.svelte';

export interface FixAction {
  title: string;
  /** What it will do, and what it did, each as a sentence. */
  does: string;
  done: string;
  /** Returns the id of a job that was made, if one was. */
  run: () => Promise<string>;
}

const OF_A_RESUBMIT = new Set(['name', 'queue', 'priority', 'time_limit', 'grace', 'max_retries', 'cores', 'memory', 'gpus', 'gpu_type', 'gpu_memory', 'cwd', 'at_once']);

export const said = (values: Record<string, unknown>): string =>
  Object.entries(values)
    .map(([name, value]) => `${name} = ${value === null ? 'none' : typeof value === 'object' ? JSON.stringify(value) : String(value)}`)
    .join(', ');

export function actionOf(fix: Schemas['Fix'], job: Schemas['JobView']): FixAction | null {
  const isOver = ['Completed', 'Failed', 'Cancelled'].includes(job.status);
  const mayControl = session.mayFor('control', job.user);
  const command = fix.command ?? '';
  if (/^phalanx release \S+$/.test(command) && mayControl) {
    return { title: 'Release the job', does: 'Its tasks may then start.', done: 'Released.', run: async () => (await post('/v1/jobs/{id}/release', { path: { id: job.id } }), '') };
  }
  const nodes = resumed(command);
  if (nodes.length && session.may('operate')) return resumes(nodes);
  const change = (fix.change ?? {}) as Record<string, unknown>;
  const names = Object.keys(change);
  if (!names.length || !names.every((name) => OF_A_RESUBMIT.has(name)) || !mayControl || !session.may('submit')) return null;
  return {
    title: isOver ? 'Submit again so' : 'Replace the job',
    does: isOver ? `The same job is submitted with ${said(change)}.` : `The same job is submitted with ${said(change)}, and this one is cancelled.`,
    done: `Submitted with ${said(change)}.`,
    run: async () => {
      const reply = (await post('/v1/jobs/{id}/resubmit', { path: { id: job.id }, body: { set: change } })) as Schemas['SubmitReply'];
      if (!isOver) await post('/v1/jobs/{id}/cancel', { path: { id: job.id } });
      return reply.batch_id;
    },
  };
}

/** The nodes of `phalanx node resume A && phalanx node resume B`; none if the command does anything else. */
export function resumed(command: string): string[] {
  const parts = command.split(' && ').map((each) => /^phalanx node resume ([\w.-]+)$/.exec(each)?.[1]);
  return parts.every((each) => each !== undefined) ? (parts as string[]) : [];
}

const resumes = (nodes: string[]): FixAction => ({
  title: nodes.length === 1 ? `Resume ${nodes[0]}` : `Resume ${nodes.length} nodes`,
  does: `${nodes.join(', ')} may then be given tasks again.`,
  done: `Resumed ${nodes.join(', ')}.`,
  run: async () => {
    for (const id of nodes) await post('/v1/nodes/{id}/resume', { path: { id } });
    return '';
  },
});
