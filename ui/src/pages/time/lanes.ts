/**
 * Spans of time in lanes: one lane for each node, or for each job. Spans of a lane that overlap stand in rows of it.
 *
 * Where they are drawn is `paint.ts`'s business.
 */
import { natural } from '../map/tree';

export type SpanKind = 'run' | 'limit' | 'kept' | 'backfill';

export interface Span {
  kind: SpanKind;
  from: number;
  to: number | null; // null: it goes on, or nobody knows until when
  lane: string;
  task: string; // its number, such as 17.3
  job: string; // the number of its job
  name: string; // of the job
  user: string;
  status: string; // Running, Completed, Failed, Cancelled; of the future: Pending
  node: string;
  devices: readonly number[];
  limit: number | null; // when its time limit ends it
  text: string; // what else is to be said of it
}

export interface PlacedSpan {
  span: Span;
  row: number;
}

export interface Lane {
  name: string;
  rows: number;
  top: number; // in pixels
  height: number;
  spans: PlacedSpan[]; // by their beginning
}

export const ROW_MAX = 16;
export const LANE_GAP = 5;
const LANE_MIN = 18;
const LANE_MAX = 112;
const ROWS_MAX = 64; // more run beside each other than could be told apart

/** Lanes in the order of `names`, each with its spans in as few rows as they need. */
export function lanesOf(names: readonly string[], spans: readonly Span[], now: number): Lane[] {
  const byLane = new Map<string, Span[]>(names.map((name) => [name, []]));
  for (const span of spans) byLane.get(span.lane)?.push(span);
  let top = 0;
  return [...byLane].map(([name, own]) => {
    const placed = inRows(own, now);
    const rows = placed.reduce((most, each) => Math.max(most, each.row + 1), 1);
    const height = Math.min(LANE_MAX, Math.max(LANE_MIN, rows * ROW_MAX));
    const lane = { name, rows, top, height, spans: placed };
    top += height + LANE_GAP;
    return lane;
  });
}

export function heightOf(lanes: readonly Lane[]): number {
  const last = lanes.at(-1);
  return last ? last.top + last.height + LANE_GAP : 0;
}

/** Each span in the first row that is free when it begins. */
export function inRows(spans: readonly Span[], now: number): PlacedSpan[] {
  const ends: number[] = [];
  return [...spans]
    .sort((a, b) => a.from - b.from || natural(a.task, b.task))
    .map((span) => {
      if (span.kind === 'kept' || span.kind === 'backfill') return { span, row: -1 }; // the whole height of the lane
      let row = ends.findIndex((end) => end <= span.from);
      if (row < 0) row = Math.min(ends.length, ROWS_MAX - 1);
      ends[row] = endOf(span, now);
      return { span, row };
    });
}

export function endOf(span: Span, now: number): number {
  return Math.max(span.from, span.to ?? (span.kind === 'run' ? now : Infinity));
}

/** The lanes that a part of the page shows; they stand below each other, so a search in halves finds the first. */
export function seenLanes(lanes: readonly Lane[], top: number, bottom: number): readonly Lane[] {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const lane = lanes[middle]!;
    if (lane.top + lane.height < top) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < lanes.length && lanes[end]!.top < bottom) end += 1;
  return lanes.slice(low, end);
}

/** The span at a point, the uppermost if they overlap. */
export function spanAt(lanes: readonly Lane[], at: number, y: number, slackS: number, now: number): Span | null {
  const lane = seenLanes(lanes, y, y + 1)[0];
  if (!lane || y < lane.top || y >= lane.top + lane.height) return null;
  const row = Math.floor(((y - lane.top) / lane.height) * lane.rows);
  const found = lane.spans.findLast(
    (each) => (each.row === row || each.row < 0) && each.span.from - slackS <= at && endOf(each.span, now) + slackS >= at,
  );
  return found?.span ?? null;
}

/** The next span in a direction: left and right within its lane, up and down to the lane above or below. */
export function next(lanes: readonly Lane[], from: Span | null, dx: number, dy: number): Span | null {
  const filled = lanes.filter((lane) => lane.spans.length);
  if (!from) return filled[0]?.spans[0]?.span ?? null;
  const at = filled.findIndex((lane) => lane.name === from.lane);
  if (dx) {
    const spans = filled[at]?.spans ?? [];
    return spans[spans.findIndex((each) => each.span === from) + dx]?.span ?? from;
  }
  const there = filled[at + dy]?.spans;
  if (!there) return from;
  return there.reduce((a, b) => (Math.abs(b.span.from - from.from) < Math.abs(a.span.from - from.from) ? b : a)).span;
}
