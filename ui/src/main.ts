/** Starts the dashboard: palette and theme first, so that nothing is drawn twice, then the login, then the page. */
import { mount } from 'svelte';
import App from './App.svelte';
import './lib/theme.svelte';
import { notes } from './lib/notes.svelte';
import { session } from './lib/session.svelte';
import { short } from './lib/text';

// Where the page was before, if its coordinator went away; the ticket takes it out of the address.
const from = new URLSearchParams(location.hash.slice(1)).get('from');
void session.start().then(() => {
  if (from && session.status === 'in') notes.say(`The coordinator at ${short(from, 100)} went away: the page goes on here, at ${location.host}.`);
});
// A link with a ticket that is pasted into an open page loads nothing anew.
window.addEventListener('hashchange', () => {
  if (/[#&]ticket=/.test(location.hash)) void session.start();
});
const target = document.getElementById('app')!;
target.replaceChildren();
mount(App, { target });
