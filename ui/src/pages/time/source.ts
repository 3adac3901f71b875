/** What the coordinator tells of a time, as spans of lanes: of nodes, or of jobs. */
import type { Schemas } from '../../lib/api';
import { natural } from '../map/tree';
import type { Span } from './lanes';

export type TimesView = Schemas['TimesView'];
export type By = 'node' | 'job';

export interface Laid {
  names: string[]; // of lanes, in order
  spans: Span[];
}

/** Spans and lanes: nodes in natural order, jobs the newest first. */
export function laidOut(view: TimesView, by: By): Laid {
  const spans = [...view.bars.map((bar) => ofBar(view, bar, by)), ...view.future.flatMap((start) => ofFuture(view, start, by))];
  const names = [...new Set(spans.map((span) => span.lane))];
  names.sort(by === 'node' ? natural : (a, b) => natural(b, a));
  return { names, spans };
}

function holderOf(view: TimesView, number: number): Schemas['MapHolder'] | undefined {
  let known = holders.get(view);
  if (!known) holders.set(view, (known = new Map(view.holders.map((holder) => [holder.number, holder]))));
  return known.get(number);
}

const holders = new WeakMap<TimesView, Map<number, Schemas['MapHolder']>>();

function ofBar(view: TimesView, bar: Schemas['TimeBar'], by: By): Span {
  const holder = holderOf(view, bar.number);
  const isLone = (holder?.tasks ?? 1) < 2;
  const task = isLone ? String(bar.number) : `${bar.number}.${(holder?.first ?? 0) + bar.task * (holder?.step ?? 1)}`;
  return {
    kind: 'run',
    from: bar.started_at,
    to: bar.ended_at ?? null,
    lane: by === 'node' ? bar.node || 'unknown node' : String(bar.number),
    task,
    job: String(bar.number),
    name: holder?.name ?? '',
    user: holder?.user ?? '',
    status: bar.status ?? 'Running',
    node: bar.node,
    devices: bar.devices ?? [],
    limit: bar.limit_at ?? null,
    text: [bar.reason, bar.attempt > 1 ? `attempt ${bar.attempt}` : ''].filter(Boolean).join(', '),
  };
}

/** The head of the queue: where and when it is to start, and what may run there before. */
function ofFuture(view: TimesView, start: Schemas['FutureStart'], by: By): Span[] {
  const holder = holderOf(view, start.number);
  const lanes = by === 'job' ? [String(start.number)] : start.nodes;
  const about = { task: String(start.number), job: String(start.number), name: holder?.name ?? '', user: holder?.user ?? '', status: 'Pending', devices: [], limit: null };
  return lanes.flatMap((lane) => {
    const node = by === 'node' ? lane : '';
    const kept: Span = { ...about, kind: 'kept', from: start.at ?? view.at, to: null, lane, node, text: start.text ?? '' };
    if (by === 'job' || !start.passes_s) return [kept];
    return [{ ...about, kind: 'backfill', from: view.at, to: view.at + start.passes_s, lane, node, text: 'what ends before this may run here first' }, kept];
  });
}

/** What a lane is called: a node's name, or a job's number and name. */
export function laneTitle(view: TimesView, lane: string, by: By): string {
  return by === 'node' ? lane : `${lane} ${holderOf(view, Number(lane))?.name ?? ''}`.trim();
}
