/**
 * A line of a log as pieces of text with a look: colours and weights of ANSI sequences are read, every other sequence is left
 * out, and what remains is plain text that is set as text. A line begins without any colour. Of a line that was written over by
 * carriage returns, as progress bars do, the last writing is kept.
 */
import { visible } from './text';

export interface Piece {
  text: string;
  /** 0–15 of the theme, or a CSS colour. */
  colour?: number | string;
  ground?: number | string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underlined?: boolean;
  struck?: boolean;
}
type Look = Omit<Piece, 'text'> & { turned?: boolean };

// CSI … letter; OSC … BEL or ST; other sequences of two characters; a sequence that the line's end cuts.
// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b\[([0-9;:?<=>!]*)([ -/]*)([@-~])|\u001b\[[0-9;]*$|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]?/g;
const PIECES_MAX = 2000;

export function pieces(line: string): Piece[] {
  const text = written(line);
  if (!text.includes('\u001b')) return text ? [{ text: visible(text) }] : [];
  const found: Piece[] = [];
  let look: Look = {};
  let from = 0;
  const add = (to: number): void => {
    if (to > from) found.push(shown(visible(text.slice(from, to)), look));
  };
  for (const match of text.matchAll(SEQUENCE)) {
    if (found.length >= PIECES_MAX) break;
    add(match.index);
    from = match.index + match[0].length;
    if (match[3] === 'm' && !match[2]) look = changed(look, match[1] ?? '');
  }
  add(text.length);
  return found;
}

/** What a line shows in the end: after the last carriage return that something follows. */
function written(line: string): string {
  const end = line.endsWith('\r') ? line.slice(0, -1) : line;
  return end.slice(end.lastIndexOf('\r') + 1);
}

function shown(text: string, { turned, ...look }: Look): Piece {
  if (!turned) return { text, ...look };
  return { text, ...look, colour: look.ground ?? 0, ground: look.colour ?? 7 };
}

function changed(before: Look, parameters: string): Look {
  const numbers = parameters === '' ? [0] : parameters.split(/[;:]/).map((each) => Number(each || 0));
  const look = { ...before };
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at]!;
    if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers, at + 1);
      if (colour !== undefined) look[code === 38 ? 'colour' : 'ground'] = colour;
      at += used;
    } else if (code === 0) for (const key of Object.keys(look) as (keyof Look)[]) delete look[key];
    else apply(look, code);
  }
  return look;
}

function apply(look: Look, code: number): void {
  if (code >= 30 && code <= 37) look.colour = code - 30;
  else if (code >= 90 && code <= 97) look.colour = code - 82;
  else if (code >= 40 && code <= 47) look.ground = code - 40;
  else if (code >= 100 && code <= 107) look.ground = code - 92;
  else if (code === 39) delete look.colour;
  else if (code === 49) delete look.ground;
  else if (code === 1) look.bold = true;
  else if (code === 2) look.dim = true;
  else if (code === 3) look.italic = true;
  else if (code === 4) look.underlined = true;
  else if (code === 7) look.turned = true;
  else if (code === 9) look.struck = true;
  else if (code === 22) delete look.bold, delete look.dim;
  else if (code === 23) delete look.italic;
  else if (code === 24) delete look.underlined;
  else if (code === 27) delete look.turned;
  else if (code === 29) delete look.struck;
}

const byte = (value: number | undefined): number => Math.min(255, Math.max(0, Math.trunc(value ?? 0) || 0));

/** 5;N or 2;R;G;B after 38 or 48, and how many numbers that took. */
function extended(numbers: number[], at: number): [colour: number | string | undefined, used: number] {
  if (numbers[at] === 2) return [`rgb(${byte(numbers[at + 1])} ${byte(numbers[at + 2])} ${byte(numbers[at + 3])})`, 4];
  if (numbers[at] !== 5) return [undefined, 0];
  const index = byte(numbers[at + 1]);
  if (index < 16) return [index, 2];
  if (index >= 232) return [`rgb(${8 + (index - 232) * 10} ${8 + (index - 232) * 10} ${8 + (index - 232) * 10})`, 2];
  const level = (value: number): number => (value ? 55 + value * 40 : 0);
  const cube = index - 16;
  return [`rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`, 2];
}
