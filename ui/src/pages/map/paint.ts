/**
 * Draws the map on a canvas: boxes of domains, tiles of nodes, cells of devices, and what is lit up.
 *
 * Only what is in the view is drawn, and text only where it can be read. What a cell means is `colours.ts`'s business.
 */

import type { CanvasColours } from '../../lib/canvas';
import { visible } from '../../lib/text';
import { fillIn, indexOf, inkOn, type Colouring, type Paint } from './colours';
import { cellBox, cellsOf, type Box, type DomainBox, type Layout, type NodeBox, type Place } from './layout';
import type { Mark, PlanOverlay } from './overlay';
import { isOpen, type Device } from './tree';

/** What the cells show; drawn again when the cluster changes. */
export interface Shown {
  filter: ((paint: Paint) => boolean) | null; // false: the cell is faded
  plan: PlanOverlay | null;
}

/** What is lit up above the cells; drawn again when the pointer moves. */
export interface Lights {
  job: string; // the job whose cells are outlined; empty: none
  ranks: ReadonlyMap<string, string>; // of its tasks, by number
  cursor: Place | null;
}

const SIGN_FROM = 10; // a cell shows its sign where it is at least so large
const RANK_FROM = 13;

/** The cells with their domains. */
export function drawCells(to: CanvasRenderingContext2D, layout: Layout, colouring: Colouring, shown: Shown, theme: CanvasColours): void {
  const painter = new Painter(to, layout, colouring, theme);
  to.clearRect(0, 0, layout.width + 1, layout.height + 1);
  for (const box of layout.domains) if (box.heading) painter.domain(box);
  for (const box of layout.nodes) painter.node(box, shown);
}

/** What is lit up, on a canvas above the cells. */
export function drawLights(to: CanvasRenderingContext2D, layout: Layout, colouring: Colouring, lights: Lights, theme: CanvasColours): void {
  const painter = new Painter(to, layout, colouring, theme);
  to.clearRect(0, 0, layout.width + 1, layout.height + 1);
  if (lights.job) for (const box of layout.nodes) painter.lit(box, lights);
  if (lights.cursor) painter.cursor(lights.cursor);
}

class Painter {
  private readonly size: number;

  constructor(
    private readonly to: CanvasRenderingContext2D,
    private readonly layout: Layout,
    private readonly colouring: Colouring,
    private readonly theme: CanvasColours,
  ) {
    this.size = layout.cell;
  }

  domain(box: DomainBox): void {
    const { to, theme } = this;
    to.fillStyle = box.depth % 2 ? theme.surface : theme.sunken;
    rounded(to, box, 4);
    to.fill();
    to.strokeStyle = theme.line;
    to.lineWidth = 1;
    to.stroke();
    const { domain } = box;
    const font = box.heading > 15 ? 12 : 11;
    to.textBaseline = 'middle';
    const y = box.y + box.heading / 2 + 1;
    to.font = `600 ${font}px ${theme.sans}`;
    to.fillStyle = theme.text;
    const name = fitted(to, visible(domain.name.slice(0, 200)), box.w - 12);
    to.fillText(name, box.x + 6, y);
    const after = box.x + 6 + to.measureText(name).width + 8;
    to.font = `400 ${font - 1}px ${theme.sans}`;
    to.fillStyle = theme.soft;
    const more = domain.devices ? `${domain.free} of ${domain.devices} free` : `${domain.nodeCount} nodes`;
    if (after + to.measureText(more).width < box.x + box.w - 6) to.fillText(more, after, y);
  }

  node(box: NodeBox, shown: Shown): void {
    const { to, theme, layout } = this;
    to.fillStyle = theme.ground;
    rounded(to, box, 2);
    to.fill();
    if (box.label) this.label(box);
    if (!isOpen(box.node)) this.closed(box);
    const marks = shown.plan?.marks.get(box.node.name);
    for (let cell = 0; cell < cellsOf(box.node); cell++) this.cell(cellBox(layout, box, cell), box, box.node.devices[cell], shown, marks);
  }

  /** A node that takes no work has a bar below its devices. */
  private closed(box: NodeBox): void {
    const { to, theme } = this;
    to.fillStyle = box.node.status === 'Online' ? theme.warn : theme.danger;
    to.fillRect(box.x, box.y + box.h - 1, box.w, 2);
  }

  /** The cells of a job, outlined, with the ranks of its members. */
  lit(box: NodeBox, lights: Lights): void {
    box.node.devices.forEach((device, index) => {
      if (device.job !== lights.job) return;
      const at = cellBox(this.layout, box, index);
      const paint = this.colouring.of(box.node, device);
      this.fill(at, paint);
      if (this.size >= RANK_FROM) this.sign(at, rankOf(device, lights), paint);
      this.outline(at, this.theme.text, this.size >= 9 ? 2 : 1, 0);
    });
    if (!box.node.devices.length && box.node.jobs.includes(lights.job)) {
      this.outline(cellBox(this.layout, box, 0), this.theme.text, 2, 0);
    }
  }

  cursor(place: Place): void {
    const box = this.layout.nodes[place.node];
    if (!box) return;
    this.outline(box, this.theme.text, 1, 2);
    if (place.device < 0) return;
    const at = cellBox(this.layout, box, place.device);
    this.outline({ x: at.x - 2, y: at.y - 2, w: at.w + 4, h: at.h + 4 }, this.theme.accent, 2, 2);
  }

  private label(box: NodeBox): void {
    const { to, theme } = this;
    const { node } = box;
    const isAway = node.status !== 'Online';
    const state = isAway ? node.status.toLowerCase() : node.drained ? 'drained' : '';
    to.textBaseline = 'middle';
    to.font = `500 10px ${theme.sans}`;
    to.fillStyle = isAway ? theme.danger : theme.soft;
    const y = box.y + box.label / 2 + 2;
    const name = fitted(to, visible(node.name.slice(0, 200)), box.w - 4);
    to.fillText(name, box.x + 3, y);
    if (!state) return;
    const after = box.x + 3 + to.measureText(name).width + 6;
    to.fillStyle = isAway ? theme.danger : theme.warn;
    if (after + to.measureText(state).width < box.x + box.w - 2) to.fillText(state, after, y);
  }

  private cell(at: Box, box: NodeBox, device: Device | undefined, shown: Shown, marks: Map<number, Mark> | undefined): void {
    const { to } = this;
    const paint = this.colouring.of(box.node, device);
    const isFaded = shown.filter !== null && !shown.filter(paint);
    to.globalAlpha = isFaded ? 0.15 : shown.plan ? 0.45 : 1;
    this.fill(at, paint);
    if (!device && box.node.devices.length === 0) this.coresUsed(at, box);
    if (this.size >= SIGN_FROM && paint.sign) this.sign(at, paint.sign, paint);
    else if (paint.tone === 'bad') this.cross(at);
    to.globalAlpha = 1;
    const mark = marks?.get(device ? device.index : -1);
    if (mark) this.mark(at, mark);
  }

  private fill(at: Box, paint: Paint): void {
    const { to, theme } = this;
    const colour = fillIn(paint, theme.name);
    if (colour) {
      to.fillStyle = colour;
      to.fillRect(at.x, at.y, at.w, at.h);
      return;
    }
    to.fillStyle = theme.surface;
    to.fillRect(at.x, at.y, at.w, at.h);
    to.strokeStyle = paint.tone === 'bad' ? theme.danger : theme.strong;
    to.lineWidth = 1;
    to.globalAlpha *= paint.tone === 'free' ? 0.55 : 1;
    to.strokeRect(at.x + 0.5, at.y + 0.5, at.w - 1, at.h - 1);
    if (paint.tone === 'free') to.globalAlpha /= 0.55;
    if (paint.tone === 'closed') this.hatch(at, theme.strong);
  }

  /** A node without devices: how much of its cores is held. */
  private coresUsed(at: Box, box: NodeBox): void {
    const { cores, coresFree } = box.node;
    const share = cores > 0 ? Math.min(1, Math.max(0, 1 - coresFree / cores)) : 0;
    if (share >= 1 || share <= 0) return;
    this.to.fillStyle = this.theme.surface;
    this.to.fillRect(at.x + 1, at.y + 1, at.w - 2, (at.h - 2) * (1 - share));
  }

  private sign(at: Box, text: string, paint: Paint): void {
    const { to, theme } = this;
    const font = Math.max(8, Math.min(15, Math.floor(this.size * (text.length > 3 ? 0.34 : text.length > 2 ? 0.42 : 0.52))));
    to.font = `600 ${font}px ${theme.sans}`;
    to.textAlign = 'center';
    to.textBaseline = 'middle';
    const colour = fillIn(paint, theme.name);
    to.fillStyle = colour ? inkOn(colour) : paint.tone === 'bad' ? theme.danger : theme.soft;
    to.fillText(text, at.x + at.w / 2, at.y + at.h / 2 + 0.5);
    to.textAlign = 'left';
  }

  private cross(at: Box): void {
    const { to, theme } = this;
    to.strokeStyle = theme.danger;
    to.lineWidth = 1;
    to.beginPath();
    to.moveTo(at.x + 1, at.y + 1);
    to.lineTo(at.x + at.w - 1, at.y + at.h - 1);
    to.stroke();
  }

  private hatch(at: Box, colour: string): void {
    const { to } = this;
    to.save();
    to.beginPath();
    to.rect(at.x, at.y, at.w, at.h);
    to.clip();
    to.strokeStyle = colour;
    to.globalAlpha *= 0.6;
    to.beginPath();
    for (let offset = -at.h; offset < at.w; offset += 4) {
      to.moveTo(at.x + offset, at.y + at.h);
      to.lineTo(at.x + offset + at.h, at.y);
    }
    to.stroke();
    to.restore();
  }

  private mark(at: Box, mark: Mark): void {
    const { to, theme } = this;
    if (mark.kind !== 'evicted') {
      to.fillStyle = theme.accent;
      to.fillRect(at.x, at.y, at.w, at.h);
      if (this.size >= SIGN_FROM && mark.sign) {
        to.font = `700 ${Math.max(8, Math.min(15, Math.floor(this.size * 0.55)))}px ${theme.sans}`;
        to.textAlign = 'center';
        to.textBaseline = 'middle';
        to.fillStyle = theme.surface;
        to.fillText(mark.sign, at.x + at.w / 2, at.y + at.h / 2 + 0.5);
        to.textAlign = 'left';
      }
    }
    if (mark.kind === 'placed') return;
    this.outline(at, theme.danger, this.size >= 9 ? 2 : 1.5, 0);
    this.hatchCorner(at);
  }

  private hatchCorner(at: Box): void {
    const { to, theme } = this;
    const side = Math.max(3, at.w * 0.4);
    to.fillStyle = theme.danger;
    to.beginPath();
    to.moveTo(at.x + at.w - side, at.y);
    to.lineTo(at.x + at.w, at.y);
    to.lineTo(at.x + at.w, at.y + side);
    to.fill();
  }

  private outline(at: Box, colour: string, width: number, radius: number): void {
    const { to } = this;
    to.strokeStyle = colour;
    to.lineWidth = width;
    const half = width / 2;
    const inner = { x: at.x + half, y: at.y + half, w: at.w - width, h: at.h - width };
    rounded(to, inner, radius);
    to.stroke();
  }
}

/** The rank of a member, or its index where the job is no gang. */
function rankOf(device: Device | undefined, lights: Lights): string {
  const task = device?.task ?? '';
  return lights.ranks.get(task) ?? indexOf(task);
}

function rounded(to: CanvasRenderingContext2D, box: Box, radius: number): void {
  to.beginPath();
  to.roundRect(box.x, box.y, Math.max(0, box.w), Math.max(0, box.h), radius);
}

/** A text that ends in … where it is too long. */
function fitted(to: CanvasRenderingContext2D, text: string, width: number): string {
  if (to.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && to.measureText(`${text.slice(0, length)}…`).width > width) length = Math.floor(length * 0.8);
  return `${text.slice(0, length)}…`;
}
