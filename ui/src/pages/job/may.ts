/**
 * What this user may do with a job. The coordinator that leads says so in `may`. One of the version before, behind a page of
 * this version, does not: then it is what the login may do with such a job, and the leader refuses what else it does not allow.
 */
import type { Schemas } from '../../lib/api';

export type Action = 'approve' | 'cancel' | 'hold' | 'release' | 'retry' | 'resubmit';
type Job = Schemas['JobView'];

/** The login, as far as it is asked about here. */
export interface Rights {
  readonly login: { readonly name: string } | null;
  may: (permission: string) => string;
  mayFor: (permission: string, owner: string) => boolean;
}

export function allowed(job: Job, session: Rights): readonly Action[] {
  const told = job.may as Action[] | undefined;
  return told ?? byRights(job, session);
}

function byRights(job: Job, session: Rights): Action[] {
  const words: Action[] = [];
  const isOver = ['Completed', 'Failed', 'Cancelled'].includes(job.status);
  const isOwn = job.user === session.login?.name;
  if (job.unapproved && !isOver && session.may('approve') && (!isOwn || session.may('control') === 'all')) words.push('approve');
  if (!session.mayFor('control', job.user)) return words;
  if (!isOver) words.push('cancel');
  if (!isOver && isHeld(job)) words.push('release');
  else if (!isOver && job.counts.pending) words.push('hold');
  if (!isOwn || job.workflow || !session.may('submit')) return words; // A copy would be another user's.
  if (isOver && (job.counts.failed ?? 0) + (job.counts.cancelled ?? 0) > 0) words.push('retry');
  words.push('resubmit');
  return words;
}

const isHeld = (job: Job): boolean => job.held !== null && job.held !== undefined;
