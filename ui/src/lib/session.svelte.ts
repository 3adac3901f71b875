/**
 * Who is logged in. The login itself is a cookie that no script can read; the CSRF token and the ticket for the next
 * coordinator are in this page's memory and nowhere else.
 *
 * `start` redeems the ticket of `#ticket=…`, once, and takes it out of the address before anything else happens.
 */
import { ApiError, del, get, post, setLogin, type Schemas } from './api';
import { notes } from './notes.svelte';

export type Login = Schemas['LoginView'];

const DEVELOPER: Login = {
  id: '', name: 'developer', role: 'admin', csrf: '', next_ticket: '', expires_at: 0, idle_s: 0, coordinators: [],
  may: new Proxy({}, { get: () => 'all' }),
};

const RETRY_MS = 1000;
const PATIENCE_MS = 60_000;

/** The ticket of the address, which is then no longer in it, nor in the history. */
export function takeTicket(): string {
  const given = new URLSearchParams(location.hash.slice(1)).get('ticket') ?? '';
  if (given) history.replaceState(history.state, '', location.pathname + location.search);
  return given;
}

class Session {
  status = $state<'unknown' | 'in' | 'out'>('unknown');
  login = $state.raw<Login | null>(null);
  /** What is waited for, while it is not known whether there is a login. */
  trouble = $state('');
  /** Why there is no login, to be shown on the page that asks for one. */
  error = $state.raw<ApiError | null>(null);

  /** `all` or `own` for a permission such as `cancel`, or nothing. */
  may(permission: string): string {
    return this.login?.may[permission] ?? '';
  }

  /** Whether this user may do something to what `owner` owns. */
  mayFor(permission: string, owner: string): boolean {
    const scope = this.may(permission);
    return scope === 'all' || (scope === 'own' && owner === this.login?.name);
  }

  async start(): Promise<void> {
    setLogin('', (error) => this.#over(error));
    const ticket = takeTicket();
    try {
      this.#take(await this.#patiently(() => (ticket ? this.#entered(ticket) : this.#current())));
    } catch (error) {
      // Development against a coordinator without logins: Vite's proxy shows a token itself.
      if (import.meta.env.DEV && error instanceof ApiError && error.status === 409) return this.#take(DEVELOPER);
      const refused = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) });
      this.#over(!ticket && refused.status === 401 ? null : refused); // nothing went wrong: nobody has logged in yet
    }
  }

  /**
   * A link with a ticket may be somebody else's, who wants this browser to work under their name: it never takes the place
   * of a login that is good. A ticket that is not needed is over in a minute.
   */
  async #entered(ticket: string): Promise<Login> {
    let known: Login;
    try {
      known = await get('/v1/logins/current');
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      return this.#redeem(ticket);
    }
    notes.say(`You are logged in as ${known.name}. To use the new ticket, log out first.`);
    return known;
  }

  /** Ask again while no coordinator can answer: one that has just died is followed by another within seconds. */
  async #patiently(ask: () => Promise<Login>): Promise<Login> {
    for (let waited = 0; ; waited += RETRY_MS) {
      try {
        const login = await ask();
        this.trouble = '';
        return login;
      } catch (error) {
        if (!(error instanceof ApiError) || !error.isPassing || waited > PATIENCE_MS) throw error;
        this.trouble = error.message;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /** A refused ticket may have been used by another tab of this browser, whose login is then ours, too. */
  async #redeem(ticket: string): Promise<Login> {
    try {
      return await post('/v1/logins', { body: { ticket } });
    } catch (error) {
      if (!(error instanceof ApiError) || error.isPassing) throw error;
      return get('/v1/logins/current').catch(() => Promise.reject(error));
    }
  }

  /** The login of the cookie; without one, that of a proxy which vouches for the user. */
  async #current(): Promise<Login> {
    try {
      return await get('/v1/logins/current');
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      return post('/v1/logins', { body: {} }).catch(() => Promise.reject(error));
    }
  }

  async logOut(): Promise<void> {
    try {
      if (this.login) await del('/v1/logins/current');
    } finally {
      this.#over(null);
    }
  }

  #take(login: Login): void {
    this.login = login;
    this.error = null;
    this.status = 'in';
    setLogin(login.csrf);
  }

  #over(error: ApiError | null): void {
    this.login = null;
    this.error = error;
    this.status = 'out';
    setLogin('');
  }

  /**
   * Open this page at another coordinator, with the ticket that was kept for that. It is used up there, and the login of
   * this coordinator ends with it.
   */
  moveTo(coordinator: string): void {
    const login = this.login;
    if (!login) return;
    const url = new URL(location.pathname + location.search, coordinator);
    url.hash = `ticket=${encodeURIComponent(login.next_ticket)}&from=${encodeURIComponent(location.host)}`;
    location.replace(url.href);
  }
}

export const session = new Session();
