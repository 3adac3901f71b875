/** The time, for what says how long ago something was: one clock for the whole page, once a second, still while hidden. */
class Now {
  /** Seconds since 1970. */
  s = $state(Date.now() / 1000);

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.s = Date.now() / 1000;
    }, 1000);
    document.addEventListener('visibilitychange', () => (this.s = Date.now() / 1000));
  }
}

export const now = new Now();
