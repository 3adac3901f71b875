/** Starts the dashboard: palette and theme first, so that nothing is drawn twice, then the login, then the page. */
import { mount } from 'svelte';
import App from './App.svelte';
import './lib/theme.svelte';
import { session } from './lib/session.svelte';

void session.start();
const target = document.getElementById('app')!;
target.replaceChildren();
mount(App, { target });
