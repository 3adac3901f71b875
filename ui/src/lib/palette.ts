/**
 * Colours of states, categories and scales, each for light and dark: the only file that knows them.
 *
 * States follow Okabe and Ito, scales Paul Tol. All stay apart for viewers with protanopia or deuteranopia, too: a test
 * computes by how much.
 * A state is never shown by colour alone: each has a sign and a word, too. What CSS needs is set as variables
 * (`--state-running`) by `applyPalette`; a canvas asks `colourOf(state, theme)`.
 */
export type Theme = 'light' | 'dark';
type Pair = readonly [light: string, dark: string];

export const STATES = ['Pending', 'Assigned', 'Running', 'Completed', 'Failed', 'Cancelled'] as const;
export type State = (typeof STATES)[number];

interface Look {
  colour: Pair;
  /** Path of a sign in a box of 12 × 12. */
  sign: string;
  /** Whether the sign is filled; otherwise it is drawn as a line. */
  filled: boolean;
}

const CIRCLE = 'M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9Z';

export const LOOKS: Record<string, Look> = {
  Pending: { colour: ['#a87900', '#e3b341'], sign: CIRCLE, filled: false },
  Assigned: { colour: ['#3d9bd6', '#8fd0f7'], sign: `${CIRCLE}M6 1.5v9a4.5 4.5 0 0 0 0-9Z`, filled: true },
  Running: { colour: ['#0067b0', '#4ba3ec'], sign: 'M3 1.5 10.5 6 3 10.5Z', filled: true },
  Completed: { colour: ['#00845f', '#35b98f'], sign: 'M2 6.4 4.9 9.3 10.2 3', filled: false },
  Failed: { colour: ['#c2331a', '#ff7a5c'], sign: 'M2.5 2.5l7 7M9.5 2.5l-7 7', filled: false },
  Cancelled: { colour: ['#737b87', '#8b95a3'], sign: 'M2 6h8', filled: false },
  // Of stages of workflows.
  Waiting: { colour: ['#a87900', '#e3b341'], sign: CIRCLE, filled: false },
  Skipped: { colour: ['#737b87', '#8b95a3'], sign: 'M2 3.5 5 6 2 8.5M6 3.5 9 6 6 8.5', filled: false },
  // Of nodes.
  Online: { colour: ['#00845f', '#35b98f'], sign: CIRCLE, filled: true },
  Offline: { colour: ['#737b87', '#8b95a3'], sign: CIRCLE, filled: false },
  Stopping: { colour: ['#a87900', '#e3b341'], sign: 'M2 6h8', filled: false },
  Unreachable: { colour: ['#c2331a', '#ff7a5c'], sign: 'M2.5 2.5l7 7M9.5 2.5l-7 7', filled: false },
  Unhealthy: { colour: ['#c2331a', '#ff7a5c'], sign: 'M6 1.5v5.5M6 9v1.5', filled: false },
  Quarantined: { colour: ['#9a4d8f', '#d99ad0'], sign: 'M6 1.5v5.5M6 9v1.5', filled: false },
};

const UNKNOWN: Look = LOOKS['Cancelled']!;

export const lookOf = (state: string): Look => LOOKS[state] ?? UNKNOWN;
export const colourOf = (state: string, theme: Theme): string => lookOf(state).colour[theme === 'light' ? 0 : 1];

/**
 * For jobs, users and queues: found by a search for twelve colours that are as far apart as can be for all three kinds of
 * viewers that `colourblind.test.ts` asks for, and far from what is free.
 */
const CATEGORIES: readonly Pair[] = [
  ['#0a50b4', '#966ed2'],
  ['#b4a028', '#dcdc64'],
  ['#782882', '#f06ebe'],
  ['#00aa8c', '#32c8a0'],
  ['#a05000', '#be641e'],
  ['#00a0fa', '#8cbefa'],
  ['#a01428', '#fa7882'],
  ['#5aa046', '#6eb450'],
  ['#b48cbe', '#fac8dc'],
  ['#327882', '#0a8c96'],
  ['#783c50', '#fac88c'],
  ['#78825a', '#788250'],
];

export const CATEGORY_COUNT = CATEGORIES.length;
export const categoryColour = (index: number, theme: Theme): string =>
  CATEGORIES[((index % CATEGORY_COUNT) + CATEGORY_COUNT) % CATEGORY_COUNT]![theme === 'light' ? 0 : 1];

/** The same name has the same colour on every page and after every reload. */
export function categoryOf(name: string): number {
  let hash = 2166136261;
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619);
  return (hash >>> 0) % CATEGORY_COUNT;
}

/** What is free, and what cannot be used. */
export const FREE: Pair = ['#e3e7ec', '#252b33'];
export const OUT_OF_SERVICE: Pair = ['#c3b8c9', '#4a3d52'];

/** From little to much (0 to 1): grows in darkness as well, so it reads without any colour. */
const SCALE: readonly Pair[] = [
  ['#eaf0f4', '#1c2733'],
  ['#c4dbea', '#1f4263'],
  ['#8fbcdb', '#2a6496'],
  ['#4d94c4', '#3f8ccb'],
  ['#1f6ba5', '#7ab8ea'],
  ['#0b4477', '#cfe6fb'],
];

export function scaleColour(share: number, theme: Theme): string {
  const at = Math.round(Math.min(1, Math.max(0, share)) * (SCALE.length - 1));
  return SCALE[at]![theme === 'light' ? 0 : 1];
}

export const pick = (pair: Pair, theme: Theme): string => pair[theme === 'light' ? 0 : 1];

/** Set `--state-NAME`, `--category-N` and `--free` on the root, through CSSOM, which the CSP allows. */
export function applyPalette(root: HTMLElement, theme: Theme): void {
  for (const [name, look] of Object.entries(LOOKS)) {
    root.style.setProperty(`--state-${name.toLowerCase()}`, pick(look.colour, theme));
  }
  CATEGORIES.forEach((pair, index) => root.style.setProperty(`--category-${index}`, pick(pair, theme)));
  root.style.setProperty('--free', pick(FREE, theme));
  root.style.setProperty('--out-of-service', pick(OUT_OF_SERVICE, theme));
}
