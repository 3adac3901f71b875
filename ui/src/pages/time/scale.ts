/** The time axis: which instants are seen, where they stand, and which of them are marked. */

export interface Range {
  from: number; // seconds since the epoch
  to: number;
}

export const SPAN_MIN_S = 20;
export const SPAN_MAX_S = 400 * 86_400;
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY];

export const xOf = (at: number, range: Range, width: number): number => ((at - range.from) / (range.to - range.from)) * width;
export const instantOf = (x: number, range: Range, width: number): number => range.from + (x / width) * (range.to - range.from);

/** Closer (factor below 1) or farther, so that the instant under the pointer stays where it is. */
export function zoomed(range: Range, factor: number, around: number): Range {
  const span = range.to - range.from;
  const wanted = Math.min(SPAN_MAX_S, Math.max(SPAN_MIN_S, span * factor));
  const share = (around - range.from) / span;
  const from = around - wanted * share;
  return { from, to: from + wanted };
}

export function panned(range: Range, seconds: number): Range {
  return { from: range.from + seconds, to: range.to + seconds };
}

export interface Tick {
  at: number;
  text: string;
  isDay: boolean; // a day begins here
}

/** Round instants in the reader's time zone, no closer than `apart` pixels. */
export function ticks(range: Range, width: number, apart = 90): Tick[] {
  const least = ((range.to - range.from) / Math.max(1, width)) * apart;
  const step = STEPS.find((each) => each >= least) ?? 365 * DAY;
  const found: Tick[] = [];
  for (let at = firstTick(range.from, step); at <= range.to && found.length < 200; at = nextTick(at, step)) {
    found.push({ at, text: tickText(at, step), isDay: isMidnight(at) });
  }
  return found;
}

/** Seconds from local time to UTC at an instant. */
function offset(at: number): number {
  return new Date(at * 1000).getTimezoneOffset() * -60;
}

function firstTick(from: number, step: number): number {
  const local = from + offset(from);
  const at = Math.ceil(local / step) * step;
  return at - offset(at - offset(from));
}

function nextTick(at: number, step: number): number {
  const next = at + step;
  return step >= HOUR ? next + offset(at) - offset(next) : next; // the clocks may change in between
}

function isMidnight(at: number): boolean {
  const when = new Date(at * 1000);
  return when.getHours() === 0 && when.getMinutes() === 0 && when.getSeconds() === 0;
}

function tickText(at: number, step: number): string {
  const when = new Date(at * 1000);
  if (isMidnight(at) || step >= DAY) return when.toLocaleDateString('en', { day: 'numeric', month: 'short' });
  const two = (value: number) => String(value).padStart(2, '0');
  const time = `${two(when.getHours())}:${two(when.getMinutes())}`;
  return step < MINUTE ? `${time}:${two(when.getSeconds())}` : time;
}
