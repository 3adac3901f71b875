/** The cluster as the stream tells it: read once, then changed by what changes; read again where too much did. */
import { get, type ApiError } from '../../lib/api';
import { changesOf, type Changes } from '../../lib/events';
import { resource } from '../../lib/resource.svelte';
import { stream } from '../../lib/stream.svelte';
import { changed, madeOf, withLater } from './source';
import type { Cluster } from './tree';

const RECENT_MAX = 60; // messages of the stream: a quarter of a minute

export interface LiveCluster {
  readonly cluster: Cluster | undefined;
  readonly error: ApiError | null;
  refresh(): void;
}

export function liveCluster(): LiveCluster {
  // What the stream told of late: an answer may be older than that.
  const recent: Changes[] = [];
  const read = resource(async (signal) => withLater(await get('/v1/pages/map', { signal }), recent), {
    everyMs: 2000,
    when: (event) => Boolean(changesOf(event)?.many || changesOf(event)?.queues),
    atLeastEveryMs: 60_000, // how long devices have been idle changes without an event
  });
  $effect(() =>
    stream.subscribe((event) => {
      const changes = changesOf(event);
      if (!changes) return;
      if (recent.push(changes) > RECENT_MAX) recent.shift();
      if (read.value) read.value = changed(read.value, changes);
    }),
  );
  const cluster = $derived(read.value && madeOf(read.value));
  return {
    get cluster() {
      return cluster;
    },
    get error() {
      return read.error;
    },
    refresh: () => void read.refresh(),
  };
}
