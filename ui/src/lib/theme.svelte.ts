/** Light or dark: as the system says, unless the user has chosen. Only that word is kept in localStorage. */
import { applyPalette, type Theme } from './palette';

export type ThemeChoice = 'system' | Theme;
const KEY = 'phalanx.theme';

function stored(): ThemeChoice {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    return 'system'; // Storage is switched off.
  }
}

const dark = matchMedia('(prefers-color-scheme: dark)');

class ThemeStore {
  choice = $state<ThemeChoice>(stored());
  #systemIsDark = $state(dark.matches);
  /** What is shown; a canvas reads it while it draws, and draws again when it changes. */
  readonly shown: Theme = $derived(this.choice === 'system' ? (this.#systemIsDark ? 'dark' : 'light') : this.choice);

  constructor() {
    dark.addEventListener('change', (event) => {
      this.#systemIsDark = event.matches;
      this.apply();
    });
    this.apply();
  }

  choose(choice: ThemeChoice): void {
    this.choice = choice;
    try {
      if (choice === 'system') localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, choice);
    } catch {
      // Not kept, then.
    }
    this.apply();
  }

  /** The next of: as the system, light, dark. */
  turn(): void {
    this.choose(this.choice === 'system' ? 'light' : this.choice === 'light' ? 'dark' : 'system');
  }

  apply(): void {
    const root = document.documentElement;
    if (this.choice === 'system') delete root.dataset['theme'];
    else root.dataset['theme'] = this.choice;
    applyPalette(root, this.shown);
  }
}

export const theme = new ThemeStore();
