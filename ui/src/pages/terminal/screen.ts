/**
 * The terminal itself: xterm.js, closed so that what a task prints can only be looked at. Links are no links, the clipboard
 * cannot be written or read, the title of the page stays, and nothing is sent but what the user types and the answers that
 * programs ask of every terminal (where the cursor is, what it can do).
 */
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import type { CanvasColours } from '../../lib/canvas';

const PENDING_BYTES_MAX = 4 * 1024 * 1024; // output that waits to be drawn
/** Operating-system commands that reach out of the terminal: titles, links, notifications, clipboard, files, iTerm's own. */
const CLOSED_OSC = [0, 1, 2, 7, 8, 9, 50, 51, 52, 99, 133, 633, 777, 1337];

export interface Screen {
  terminal: Terminal;
  write: (bytes: Uint8Array) => void;
  fit: () => void;
  colour: (colours: CanvasColours) => void;
  dispose: () => void;
}

export function openScreen(into: HTMLElement, colours: CanvasColours, onleave: () => void): Screen {
  const terminal = new Terminal({
    cursorBlink: false,
    fontFamily: getComputedStyle(into).fontFamily,
    fontSize: 13,
    scrollback: 10_000,
    screenReaderMode: true,
    linkHandler: { activate: () => undefined },
    theme: themeOf(colours),
    windowOptions: {},
  });
  for (const number of CLOSED_OSC) terminal.parser.registerOscHandler(number, () => true);
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== 'Escape' || !event.shiftKey) return true;
    if (event.type === 'keydown') onleave();
    return false;
  });
  terminal.open(into);
  fit.fit();
  const output = new Output(terminal);
  return {
    terminal,
    write: (bytes) => output.write(bytes),
    fit: () => fit.fit(),
    colour: (now) => (terminal.options.theme = themeOf(now)),
    dispose: () => terminal.dispose(),
  };
}

/** Output on its way to the screen. What comes faster than it can be drawn is left out, and that is said. */
class Output {
  #pending = 0;
  #leftOut = 0;

  constructor(private readonly terminal: Terminal) {}

  write(bytes: Uint8Array): void {
    if (this.#pending + bytes.length > PENDING_BYTES_MAX) {
      this.#leftOut += bytes.length;
      return;
    }
    if (this.#leftOut) this.terminal.write(`\r\n\u001b[0m[${this.#leftOut.toLocaleString('en')} bytes were left out]\r\n`);
    this.#leftOut = 0;
    this.#pending += bytes.length;
    this.terminal.write(bytes, () => (this.#pending -= bytes.length));
  }
}

function themeOf(colours: CanvasColours): Record<string, string> {
  return { background: colours.surface, foreground: colours.text, cursor: colours.accent, cursorAccent: colours.surface, selectionBackground: colours.strong };
}
