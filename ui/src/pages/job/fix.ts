/**
 * What a button can do about a fix that `why` has tried. The server gives a command only to those whose command it would
 * carry out, so a fix without a command has no button: a job that others start after, or of which a part has run, is not
 * replaced, for that would cancel it. Commands that no button knows are shown as they are.
 */
import { ApiError, get, patch, post, type Schemas } from '../../lib/api';
import { indexOf } from './tasks.svelte';

type Fix = Schemas['Fix'];
type Job = Schemas['JobView'];

export interface FixAction {
  title: string;
  /** What it will do, and what it did, each as a sentence. */
  does: string;
  done: string;
  /** Returns the id of a job that was made, if one was. */
  run: () => Promise<string>;
}

const OF_A_RESUBMIT = new Set([
  'name', 'queue', 'priority', 'time_limit', 'grace', 'max_retries', 'cores', 'memory', 'gpus', 'gpu_type', 'gpu_memory', 'cwd', 'at_once',
  'min', 'gather', 'targets',
]);

interface Rule {
  layer: string;
  must?: boolean;
}

/** A change in words, such as `gpus = 2, gather = none`. */
export const said = (values: Record<string, unknown>): string =>
  Object.entries(values)
    .map(([name, value]) => `${name} = ${worded(value)}`)
    .join(', ');

function worded(value: unknown): string {
  if (value === null || (Array.isArray(value) && !value.length)) return 'none';
  if (Array.isArray(value)) return value.map((each: Rule | string) => (typeof each === 'string' ? each : `${each.layer}${each.must ? ':must' : ''}`)).join(' ');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

export function actionOf(fix: Fix, job: Job, why: () => Promise<Schemas['WhyReply']>): FixAction | null {
  const command = fix.command ?? '';
  const nodes = resumed(command);
  if (nodes.length) return resumes(nodes);
  const [, verb = '', id = '', rest = ''] = /^phalanx (release|approve|update|resume) (\S+)( .*)?$/.exec(command) ?? [];
  const path = { id };
  if (verb === 'resume' && !rest) return { title: 'Resume the task', does: 'It goes on where it was paused.', done: 'Resumed.', run: async () => (await post('/v1/tasks/{id}/resume', { path }), '') };
  if (isOf(job, id)) {
    if (verb === 'release' && !rest) return { title: 'Release the job', does: 'Its tasks may then start.', done: 'Released.', run: async () => (await post('/v1/jobs/{id}/release', { path }), '') };
    if (verb === 'approve' && !rest) return { title: 'Approve the job', does: 'It may then start.', done: 'Approved.', run: async () => (await post('/v1/jobs/{id}/approve', { path }), '') };
    if (verb === 'update' && rest === ' --begin now') {
      return { title: 'Begin now', does: 'Its tasks may then start at once.', done: 'It may begin.', run: async () => (await patch('/v1/jobs/{id}', { path, body: { begin: 'now' } }), '') };
    }
  }
  return replaces(fix, job) ? replacement(fix.change as Record<string, unknown>, job, why) : null;
}

/** Whether a fix is this job with other values: the command begins with its cancellation. */
function replaces(fix: Fix, job: Job): boolean {
  const names = Object.keys(fix.change ?? {});
  const [, id = ''] = /^phalanx cancel (\S+)( && .*)?$/s.exec(fix.command ?? '') ?? [];
  return isOf(job, id) && names.length > 0 && names.every((name) => OF_A_RESUBMIT.has(name)) && (job.may ?? []).includes('resubmit');
}

const isOf = (job: Job, id: string): boolean => id !== '' && (id === job.id || id === String(job.number));

const replacement = (change: Record<string, unknown>, job: Job, why: () => Promise<Schemas['WhyReply']>): FixAction => ({
  title: 'Replace the job',
  does: `The same job is submitted with ${said(change)}, and this one is cancelled.`,
  done: `Submitted with ${said(change)}.`,
  run: async () => {
    const now = (await why()).fix; // It may have started meanwhile, or another job may have come to start after it.
    if (!now || !replaces(now, job)) throw new ApiError(409, { detail: 'The job or the cluster has changed meanwhile, so nothing was done. Look at why it waits now.' });
    const reply = (await post('/v1/jobs/{id}/resubmit', { path: { id: job.id }, body: { set: change } })) as Schemas['SubmitReply'];
    await post('/v1/jobs/{id}/cancel', { path: { id: job.id } });
    return reply.batch_id;
  },
});

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

/** Why a job, or the part of it that waits, is as it is at this moment. */
export async function whyOf(id: string, waitsInPart: boolean, signal?: AbortSignal): Promise<Schemas['WhyReply']> {
  try {
    return await get('/v1/jobs/{id}/why', { path: { id }, query: { waiting: waitsInPart || undefined }, signal });
  } catch (refused) {
    if (!waitsInPart || !(refused instanceof ApiError) || refused.status !== 400) throw refused;
    return whyOfFirst(id, signal); // A leader of the version before does not know `waiting`.
  }
}

/** Why the first task of a job that waits does; if none does any more, why the job is as it is. */
async function whyOfFirst(id: string, signal?: AbortSignal): Promise<Schemas['WhyReply']> {
  const states = await get('/v1/jobs/{id}/states', { path: { id }, signal });
  const at = states.states.indexOf('P');
  if (at < 0) return get('/v1/jobs/{id}/why', { path: { id }, signal });
  return get('/v1/tasks/{id}/why', { path: { id: `${states.id}.${indexOf(states, at)}` }, signal });
}
