/**
 * Every page, one line each: its address under /ui/, its title, the second key of its shortcut (`g j`), where the navigation
 * shows it, and its code, which is loaded when it is opened. Each page is a folder of `pages/` with a Page.svelte.
 */
import type { Component } from 'svelte';

export interface Route {
  path: string;
  title: string;
  /** `g` and this key open the page. */
  key?: string;
  /** The group of the navigation; none: reached from other pages only. */
  nav?: 'main' | 'more' | 'admin';
  /** Path of an icon in a box of 16 × 16, drawn as a line. */
  icon?: string;
  load: () => Promise<{ default: Component<any> }>;
}

// prettier-ignore
export const routes: readonly Route[] = [
  { path: '/', title: 'Overview', key: 'o', nav: 'main', icon: 'M2 2h5v6H2zM9 2h5v3H9zM9 7h5v7H9zM2 10h5v4H2z', load: () => import('./pages/overview/Page.svelte') },
  { path: '/jobs', title: 'Jobs', key: 'j', nav: 'main', icon: 'M2 3.5h12M2 8h12M2 12.5h12', load: () => import('./pages/jobs/Page.svelte') },
  { path: '/jobs/:id', title: 'Job', load: () => import('./pages/job/Page.svelte') },
  { path: '/map', title: 'Map', key: 'm', nav: 'main', icon: 'M2 2h12v12H2zM8 2v12M2 6h6M8 9h6M11 9v5', load: () => import('./pages/map/Page.svelte') },
  { path: '/time', title: 'Time', key: 't', nav: 'main', icon: 'M2 3h6M5 6.5h7M3 10h4M9 13.5h5', load: () => import('./pages/time/Page.svelte') },
  { path: '/workflows', title: 'Workflows', key: 'w', nav: 'more', icon: 'M2 6.5h4v3H2zM10 2h4v3h-4zM10 11h4v3h-4zM6 8h2V3.5h2M8 8v4.5h2', load: () => import('./pages/workflows/Page.svelte') },
  { path: '/workflows/:id', title: 'Workflow', load: () => import('./pages/workflow/Page.svelte') },
  { path: '/nodes', title: 'Nodes', key: 'n', nav: 'more', icon: 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01', load: () => import('./pages/nodes/Page.svelte') },
  { path: '/nodes/:name', title: 'Node', load: () => import('./pages/node/Page.svelte') },
  { path: '/queues', title: 'Queues', key: 'q', nav: 'more', icon: 'M3 2v12M8 5v9M13 8v6', load: () => import('./pages/queues/Page.svelte') },
  { path: '/terminal/:task', title: 'Terminal', load: () => import('./pages/terminal/Page.svelte') },
  { path: '/tokens', title: 'Tokens', key: 'k', nav: 'admin', icon: 'M6 10a3.5 3.5 0 1 1 3-1.7L14 13M12 11l-1.5 1.5', load: () => import('./pages/tokens/Page.svelte') },
  { path: '/audit', title: 'Audit', key: 'a', nav: 'admin', icon: 'M4 2h8v12H4zM6 5h4M6 8h4M6 11h2', load: () => import('./pages/audit/Page.svelte') },
];
