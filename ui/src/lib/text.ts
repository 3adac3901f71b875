/**
 * Text of users, made safe to look at. It is always set as text, never as HTML, so it cannot run; what is left to do is that
 * it cannot lie: marks that turn the direction of writing and control characters are shown as signs, and a line has a limit.
 */

/** Marks that turn or hide the direction of writing, and characters without any width. */
const DIRECTION = /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
const C1 = /[\u0080-\u009f]/g;

export const LINE_MAX = 20_000;

const named = (mark: string): string => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

/** Text with its invisible marks made visible: `⟨U+202E⟩` for right-to-left override, `␛` for escape. */
export function visible(text: string): string {
  return text
    .replace(DIRECTION, named)
    .replace(CONTROL, (mark) => (mark === '\u007f' ? '␡' : String.fromCharCode(0x2400 + mark.charCodeAt(0))))
    .replace(C1, named);
}

/** The same, no longer than `most` characters, with a note of how much was left out. */
export function short(text: string, most = LINE_MAX): string {
  if (text.length <= most) return visible(text);
  return `${visible(text.slice(0, most))} … ${(text.length - most).toLocaleString('en')} more characters`;
}
