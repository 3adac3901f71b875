/**
 * How the dashboard is built: into src/phalanx/dashboard/static, one small first chunk and one chunk per page, each also
 * as .br and .gz, which the coordinator serves as they are.
 *
 * `npm run dev` serves the sources and sends /v1 and /ui/api to the coordinator of PHALANX_ADDRESS with the token of
 * PHALANX_TOKEN_FILE. That is for development only: the token stays in this process, and no built file knows of it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin, type ProxyOptions } from 'vite';

const COMPRESSIBLE = /\.(js|css|html|svg|json)$/;

/** Writes a .br and a .gz beside each text file of the build that is worth it. */
function precompressed(): Plugin {
  return {
    name: 'precompressed',
    apply: 'build',
    writeBundle(options, bundle) {
      for (const fileName of Object.keys(bundle)) {
        if (!COMPRESSIBLE.test(fileName)) continue;
        const path = join(options.dir!, fileName);
        const source = readFileSync(path);
        if (source.length < 1024) continue;
        const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: source.length };
        writeFileSync(`${path}.br`, brotliCompressSync(source, { params }));
        writeFileSync(`${path}.gz`, gzipSync(source, { level: 9 }));
      }
    },
  };
}

function toCoordinator(): Record<string, ProxyOptions> {
  const target = process.env['PHALANX_ADDRESS'] ?? 'http://127.0.0.1:7433';
  const tokenFile = process.env['PHALANX_TOKEN_FILE'];
  const headers: Record<string, string> = tokenFile
    ? { Authorization: `Bearer ${readFileSync(tokenFile, 'utf8').trim()}`, Origin: target }
    : {};
  const options: ProxyOptions = { target, changeOrigin: true, ws: true, headers };
  return { '/v1': options, '/ui/api': options, '/openapi.json': options };
}

export default defineConfig(({ command }) => ({
  base: '/ui/',
  plugins: [svelte(), precompressed()],
  server: command === 'serve' ? { proxy: toCoordinator() } : {},
  build: {
    outDir: '../src/phalanx/dashboard/static',
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0, // A data: address is not allowed by the CSP.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
}));
