/**
 * Keyboard shortcuts: pages and components register theirs while they are shown, and `?` lists all of them. A letter does
 * nothing while the user types, and nothing together with Ctrl, Alt or Meta, which belong to the browser.
 */

import { untrack } from 'svelte';

export interface Shortcut {
  /** `?`, `j`, `Escape`, or two keys after each other: `g o`. */
  keys: string;
  does: string;
  run: () => void;
}

const SECOND_KEY_MS = 1200;

export const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest('.xterm') !== null);

class Keys {
  shortcuts = $state.raw<readonly Shortcut[]>([]);
  #first = '';
  #firstAt = 0;

  constructor() {
    addEventListener('keydown', (event) => this.#onKey(event));
  }

  /** Register until the returned function is called; in a component: `$effect(() => keys.register([...]))`. */
  register(shortcuts: readonly Shortcut[]): () => void {
    this.shortcuts = [...untrack(() => this.shortcuts), ...shortcuts];
    return () => {
      this.shortcuts = this.shortcuts.filter((each) => !shortcuts.includes(each));
    };
  }

  #onKey(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target)) return;
    if (document.querySelector('dialog[open]') && event.key !== 'Escape') return;
    const both = event.timeStamp - this.#firstAt < SECOND_KEY_MS ? `${this.#first} ${event.key}` : '';
    this.#first = event.key;
    this.#firstAt = event.timeStamp;
    // The newest comes first: what a page registers wins over the shell.
    const found = this.shortcuts.findLast((each) => each.keys === both) ?? this.shortcuts.findLast((each) => each.keys === event.key);
    if (!found) return;
    event.preventDefault();
    this.#first = '';
    found.run();
  }
}

export const keys = new Keys();
