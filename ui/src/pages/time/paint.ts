/** Draws the Gantt chart on a canvas: the axis, lanes, spans in their job's colour and state, the future hatched, and now. */
import type { CanvasColours } from '../../lib/canvas';
import { categoryColour, colourOf } from '../../lib/palette';
import { inkOn } from '../map/colours';
import { endOf, seenLanes, type Lane, type PlacedSpan, type Span } from './lanes';
import { ticks, xOf, type Range } from './scale';

export interface Scene {
  lanes: readonly Lane[];
  title: (lane: string) => string;
  range: Range;
  now: number;
  width: number; // of the canvas
  height: number;
  top: number; // how far it is scrolled
  names: number; // the width of the lanes' names
  chosen: Span | null;
  job: string; // lit up; the others are faded
}

export const AXIS = 26;
const NOW_HALF = 16; // half of the word at the line of now

export function draw(to: CanvasRenderingContext2D, scene: Scene, theme: CanvasColours): void {
  to.clearRect(0, 0, scene.width, scene.height);
  const seen = seenLanes(scene.lanes, scene.top, scene.top + scene.height - AXIS);
  to.save();
  to.translate(0, AXIS - scene.top);
  stripes(to, scene, seen, theme);
  clipped(to, scene, () => seen.forEach((lane) => lane.spans.forEach((each) => span(to, scene, lane, each, theme))));
  names(to, scene, seen, theme);
  to.restore();
  axis(to, scene, theme);
  nowLine(to, scene, theme);
}

function plot(scene: Scene): number {
  return Math.max(1, scene.width - scene.names);
}

function clipped(to: CanvasRenderingContext2D, scene: Scene, paint: () => void): void {
  to.save();
  to.beginPath();
  to.rect(scene.names, scene.top, plot(scene), scene.height);
  to.clip();
  paint();
  to.restore();
}

function stripes(to: CanvasRenderingContext2D, scene: Scene, seen: readonly Lane[], theme: CanvasColours): void {
  to.strokeStyle = theme.line;
  to.lineWidth = 1;
  to.beginPath();
  for (const lane of seen) {
    const y = Math.round(lane.top + lane.height + 2) + 0.5;
    to.moveTo(0, y);
    to.lineTo(scene.width, y);
  }
  for (const tick of ticks(scene.range, plot(scene))) {
    const x = Math.round(scene.names + xOf(tick.at, scene.range, plot(scene))) + 0.5;
    if (x < scene.names) continue;
    to.moveTo(x, scene.top);
    to.lineTo(x, scene.top + scene.height);
  }
  to.stroke();
}

function names(to: CanvasRenderingContext2D, scene: Scene, seen: readonly Lane[], theme: CanvasColours): void {
  to.fillStyle = theme.surface;
  to.fillRect(0, scene.top, scene.names - 1, scene.height);
  to.textBaseline = 'middle';
  to.font = `500 12px ${theme.sans}`;
  to.fillStyle = theme.text;
  for (const lane of seen) to.fillText(fitted(to, scene.title(lane.name), scene.names - 16), 10, lane.top + Math.min(lane.height, 22) / 2 + 1);
}

function span(to: CanvasRenderingContext2D, scene: Scene, lane: Lane, placed: PlacedSpan, theme: CanvasColours): void {
  const each = placed.span;
  const end = Math.min(endOf(each, scene.now), scene.range.to + 60);
  if (end < scene.range.from || each.from > scene.range.to) return;
  const left = scene.names + xOf(Math.max(each.from, scene.range.from - 60), scene.range, plot(scene));
  const right = scene.names + xOf(end, scene.range, plot(scene));
  const rowHeight = placed.row < 0 ? lane.height : lane.height / lane.rows;
  const gap = rowHeight > 6 ? 1 : 0;
  const box = { x: left, y: lane.top + Math.max(0, placed.row) * rowHeight + gap / 2, w: Math.max(1.5, right - left - (right - left > 4 ? 1 : 0)), h: Math.max(1, rowHeight - gap) };
  to.globalAlpha = scene.job && scene.job !== each.job ? 0.18 : 1;
  if (each.kind === 'run') ran(to, scene, box, each, theme);
  else future(to, box, each, theme);
  to.globalAlpha = 1;
  if (each === scene.chosen) {
    to.strokeStyle = theme.accent;
    to.lineWidth = 2;
    to.strokeRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2);
  }
}

interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

function ran(to: CanvasRenderingContext2D, scene: Scene, box: Rect, each: Span, theme: CanvasColours): void {
  const fill = categoryColour(Number.parseInt(each.job, 10) || 0, theme.name);
  to.fillStyle = fill;
  to.fillRect(box.x, box.y, box.w, box.h);
  if (each.status === 'Failed' || each.status === 'Cancelled') {
    to.fillStyle = colourOf(each.status, theme.name);
    to.fillRect(box.x + box.w - Math.min(4, box.w), box.y, Math.min(4, box.w), box.h);
  }
  if (each.to === null && each.limit) limit(to, scene, box, each.limit, fill);
  if (box.w < 26 || box.h < 10) return;
  to.fillStyle = inkOn(fill);
  to.font = `500 ${Math.min(11, box.h - 2)}px ${theme.sans}`;
  to.textBaseline = 'middle';
  const shown = Math.max(box.x, scene.names);
  const room = box.x + box.w - shown - 8;
  const text = fitted(to, `${each.task} ${each.name}`.trim(), room);
  if (text.startsWith(each.task)) to.fillText(text, shown + 4, box.y + box.h / 2 + 0.5);
}

/** From now to the end that its time limit sets. */
function limit(to: CanvasRenderingContext2D, scene: Scene, box: Rect, at: number, fill: string): void {
  const end = scene.names + xOf(at, scene.range, plot(scene));
  if (end <= box.x + box.w) return;
  const alpha = to.globalAlpha;
  to.fillStyle = fill;
  to.globalAlpha = alpha * 0.22;
  to.fillRect(box.x + box.w, box.y, end - box.x - box.w, box.h);
  to.globalAlpha = alpha;
  to.fillRect(end - 1, box.y, 1, box.h);
}

function future(to: CanvasRenderingContext2D, box: Rect, each: Span, theme: CanvasColours): void {
  const isKept = each.kind === 'kept';
  to.save();
  to.beginPath();
  to.rect(box.x, box.y, box.w, box.h);
  to.clip();
  to.strokeStyle = isKept ? theme.accent : theme.strong;
  to.globalAlpha *= isKept ? 0.55 : 0.4;
  to.lineWidth = 1;
  to.beginPath();
  const step = isKept ? 6 : 10;
  const from = Math.floor((box.x - box.h) / step) * step;
  for (let x = from; x < box.x + box.w; x += step) {
    to.moveTo(x, box.y + box.h);
    to.lineTo(x + (isKept ? box.h : -box.h), box.y);
  }
  to.stroke();
  to.restore();
  if (!isKept) return;
  to.fillStyle = theme.accent;
  to.fillRect(box.x, box.y, 2, box.h);
  to.font = `600 11px ${theme.sans}`;
  to.textBaseline = 'middle';
  const text = fitted(to, `${each.job} ${each.name}`.trim(), box.w - 10);
  if (box.w < 30 || text.length < 2) return;
  to.fillStyle = theme.surface;
  to.fillRect(box.x + 5, box.y + 2, to.measureText(text).width + 6, Math.min(14, box.h - 3));
  to.fillStyle = theme.accent;
  to.fillText(text, box.x + 8, box.y + 9.5);
}

function axis(to: CanvasRenderingContext2D, scene: Scene, theme: CanvasColours): void {
  to.fillStyle = theme.surface;
  to.fillRect(0, 0, scene.width, AXIS);
  to.strokeStyle = theme.line;
  to.lineWidth = 1;
  to.beginPath();
  to.moveTo(0, AXIS - 0.5);
  to.lineTo(scene.width, AXIS - 0.5);
  to.moveTo(scene.names - 0.5, 0);
  to.lineTo(scene.names - 0.5, scene.height);
  to.stroke();
  to.textBaseline = 'middle';
  const now = scene.names + xOf(scene.now, scene.range, plot(scene));
  for (const tick of ticks(scene.range, plot(scene))) {
    const x = scene.names + xOf(tick.at, scene.range, plot(scene));
    to.font = `${tick.isDay ? 600 : 400} 11px ${theme.sans}`;
    const end = x + 4 + to.measureText(tick.text).width;
    if (x < scene.names - 1 || end - 4 > scene.width) continue;
    if (x + 4 < now + NOW_HALF && end > now - NOW_HALF) continue; // the word `now` stands there
    to.fillStyle = tick.isDay ? theme.text : theme.soft;
    to.fillText(tick.text, x + 4, AXIS / 2);
  }
}

function nowLine(to: CanvasRenderingContext2D, scene: Scene, theme: CanvasColours): void {
  const x = Math.round(scene.names + xOf(scene.now, scene.range, plot(scene))) + 0.5;
  if (x < scene.names || x > scene.width) return;
  to.strokeStyle = theme.text;
  to.lineWidth = 1;
  to.setLineDash([3, 3]);
  to.beginPath();
  to.moveTo(x, AXIS - 6);
  to.lineTo(x, scene.height);
  to.stroke();
  to.setLineDash([]);
  to.fillStyle = theme.text;
  to.font = `600 10px ${theme.sans}`;
  const width = to.measureText('now').width + 8;
  to.fillRect(x - width / 2, AXIS - 13, width, 12);
  to.fillStyle = theme.surface;
  to.fillText('now', x - width / 2 + 4, AXIS - 6.5);
}

function fitted(to: CanvasRenderingContext2D, text: string, width: number): string {
  if (width <= 6) return '';
  if (to.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && to.measureText(`${text.slice(0, length)}…`).width > width) length = Math.floor(length * 0.8);
  return `${text.slice(0, length)}…`;
}
