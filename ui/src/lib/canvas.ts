/** Colours of the page as a canvas needs them: read from the style sheet once per theme, so that both look the same. */
import type { Theme } from './palette';

export interface CanvasColours {
  name: Theme;
  ground: string;
  surface: string;
  sunken: string;
  line: string;
  strong: string;
  text: string;
  soft: string;
  accent: string;
  danger: string;
  warn: string;
  sans: string;
}

export function canvasColours(name: Theme): CanvasColours {
  const probe = document.createElement('span');
  document.body.append(probe);
  const colour = (variable: string): string => {
    probe.style.color = `var(${variable})`;
    return getComputedStyle(probe).color;
  };
  const made: CanvasColours = {
    name,
    ground: colour('--ground'),
    surface: colour('--surface'),
    sunken: colour('--sunken'),
    line: colour('--line'),
    strong: colour('--line-strong'),
    text: colour('--text'),
    soft: colour('--text-soft'),
    accent: colour('--accent'),
    danger: colour('--danger'),
    warn: colour('--state-pending'),
    sans: getComputedStyle(document.body).fontFamily,
  };
  probe.remove();
  return made;
}
