/** Quotas beside what is used, for a queue or for a user of it: the rows that the page draws as bars. */
import type { Schemas } from '../../lib/api';
import { bytes } from '../../lib/format';

export type QueueView = Schemas['QueueView'];
type Used = Schemas['UsageView'];
type Limits = { gpus?: number | null; cores?: number | null; memory_bytes?: number | null; tasks?: number | null; running?: number | null; submitted?: number | null } | null | undefined;

export interface UseRow {
  name: string;
  used: number;
  limit: number | null; // null: none
  usedText: string;
  limitText: string;
}

const asCount = (value: number): string => value.toLocaleString('en');

/** What is used of each thing, against its limit. Jobs that have not ended are `submitted`. */
export function useRows(used: Used, limits: Limits, submitted: number): UseRow[] {
  const row = (name: string, now: number, limit: number | null | undefined, text = asCount): UseRow => ({
    name,
    used: now,
    limit: limit ?? null,
    usedText: text(now),
    limitText: limit === null || limit === undefined ? 'no limit' : text(limit),
  });
  return [
    row('GPUs', used.gpus, limits?.gpus),
    row('Cores', used.cores, limits?.cores),
    row('Memory', used.memory_bytes, limits?.memory_bytes, bytes),
    row('Running tasks', used.tasks, limits?.tasks ?? limits?.running),
    row('Tasks not ended', submitted, limits?.submitted),
  ];
}

/** What else a quota says, in words. */
export function rules(queue: QueueView): [string, string][] {
  const quota = queue.quota;
  if (!quota) return [];
  const found: [string, string][] = [];
  if (quota.priority_max !== null && quota.priority_max !== undefined) found.push(['Highest priority', String(quota.priority_max)]);
  if (quota.users?.length) found.push(['Users', quota.users.join(', ')]);
  if (quota.roles?.length) found.push(['Roles', quota.roles.join(', ')]);
  const each = quota.each_user ? limitWords(quota.each_user) : 'no limit';
  if (each !== 'no limit') found.push(['Each user', each]);
  if (quota.approval) found.push(['Approval', quota.approval.by?.length ? `by ${quota.approval.by.join(', ')}` : 'needed']);
  if (quota.dispatch_mode) found.push(['Dispatch', quota.dispatch_mode]);
  if (quota.selection) found.push(['Choice of nodes', quota.selection]);
  if (quota.order === 'fair') found.push(['Order', 'fair: of jobs with one priority, those of the user who holds least go first']);
  return found;
}

export function limitWords(limits: NonNullable<Limits>): string {
  const words = [
    limits.gpus !== null && limits.gpus !== undefined ? `${asCount(limits.gpus)} GPUs` : '',
    limits.cores !== null && limits.cores !== undefined ? `${asCount(limits.cores)} cores` : '',
    limits.memory_bytes !== null && limits.memory_bytes !== undefined ? `${bytes(limits.memory_bytes)} of memory` : '',
    limits.running !== null && limits.running !== undefined ? `${asCount(limits.running)} running tasks` : '',
    limits.submitted !== null && limits.submitted !== undefined ? `${asCount(limits.submitted)} tasks not ended` : '',
  ].filter(Boolean);
  return words.join(', ') || 'no limit';
}
