/**
 * Which page is shown: the address under /ui/, its parameters and its query. The state of a page (filters, sort, choice)
 * lives in the query, so that a link shows what its sender saw.
 *
 * Links are ordinary `<a href="/ui/…">`; a click is taken over only where the browser would load this document again.
 */
import { routes, type Route } from '../routes';

export const BASE = '/ui';

export interface Match {
  route: Route;
  params: Record<string, string>;
}

/** The parameters of a path that fits a pattern such as /jobs/:id, or null. */
export function fits(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split('/').filter(Boolean);
  const given = path.split('/').filter(Boolean);
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    const value = given[at]!;
    if (part.startsWith(':')) {
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null; // Not an address that we made.
      }
    } else if (part !== value) return null;
  }
  return params;
}

/** The address of a page: `to('/jobs/:id', { id }, { tab: 'logs' })`. */
export function to(pattern: string, params: Record<string, string> = {}, query: Record<string, string | undefined> = {}): string {
  const path = pattern.replace(/:([a-z]+)/g, (_all, name: string) => encodeURIComponent(params[name] ?? ''));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const asked = search.toString();
  return `${BASE}${path}${asked ? `?${asked}` : ''}`;
}

class Router {
  #href = $state(location.href);
  readonly url: URL = $derived(new URL(this.#href));
  readonly path: string = $derived(this.url.pathname.slice(BASE.length) || '/');
  readonly match: Match | null = $derived(this.#find(this.path));

  constructor() {
    addEventListener('popstate', () => (this.#href = location.href));
    document.addEventListener('click', (event) => this.#onClick(event));
  }

  #find(path: string): Match | null {
    for (const route of routes) {
      const params = fits(route.path, path);
      if (params) return { route, params };
    }
    return null;
  }

  go(href: string, options: { replace?: boolean } = {}): void {
    const moved = new URL(href, location.href).pathname !== location.pathname;
    history[options.replace ? 'replaceState' : 'pushState'](null, '', href);
    this.#href = location.href;
    if (moved) scrollTo(0, 0);
  }

  /** A value of the query, or the empty string. */
  query(name: string): string {
    return this.url.searchParams.get(name) ?? '';
  }

  /** Change values of the query; an empty one is removed. What is typed replaces, what is chosen may be gone back to. */
  setQuery(values: Record<string, string | undefined>, options: { push?: boolean } = {}): void {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(values)) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    if (url.href !== location.href) this.go(url.href, { replace: !options.push });
  }

  #onClick(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (!(link.pathname === BASE || link.pathname.startsWith(`${BASE}/`)) || link.getAttribute('href')?.startsWith('#')) return;
    event.preventDefault();
    this.go(link.href);
  }
}

export const router = new Router();

/** The page of a job, or of one of its tasks, by its number: 17, 17.3. */
export function toTask(number: string): string {
  const [job, index] = number.split('.');
  return to('/jobs/:id', { id: job ?? '' }, { task: index === undefined ? '' : number });
}

/** The page of a workflow with one of its stages chosen, from ID:STAGE. */
export function toStage(of: string): string {
  const [workflow, ...stage] = of.split(':');
  return to('/workflows/:id', { id: workflow ?? '' }, { stage: stage.join(':') });
}
