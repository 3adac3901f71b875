/** The cluster as the stream tells it: read once, then changed by what changes; read again where too much did. */
import { get, type ApiError } from '../../lib/api';
import { changesOf } from '../../lib/events';
import { resource } from '../../lib/resource.svelte';
import { stream } from '../../lib/stream.svelte';
import { changed, madeOf } from './source';
import type { Cluster } from './tree';

export interface LiveCluster {
  readonly cluster: Cluster | undefined;
  readonly error: ApiError | null;
  refresh(): void;
}

export function liveCluster(): LiveCluster {
  const read = resource((signal) => get('/v1/pages/map', { signal }), {
    everyMs: 2000,
    when: (event) => Boolean(changesOf(event)?.many || changesOf(event)?.queues),
    atLeastEveryMs: 60_000, // how long devices have been idle changes without an event
  });
  $effect(() =>
    stream.subscribe((event) => {
      const changes = changesOf(event);
      if (changes && read.value) read.value = changed(read.value, changes);
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
