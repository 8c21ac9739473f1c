// Bundle the page into the files that the Python package ships, with the licenses of what is in it.
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const folder = process.argv[2] ?? "../src/wrt/_microscope/assets";
const bundled = ["preact", "@preact/signals", "@preact/signals-core", "htm", "@dagrejs/dagre", "@dagrejs/graphlib"];

async function licenseOf(name) {
  const { version, license } = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
  const text = await readFile(`node_modules/${name}/LICENSE`, "utf8");
  const holder = /^ *(Copyright (\(c\) )?\d.*)$/im.exec(text)?.[1] ?? "";
  return { line: `${name} ${version}: ${license}. ${holder}`, text };
}

const licenses = await Promise.all(bundled.map(licenseOf));
const notice = ["Built from frontend/ by `make page`. It contains:", ...licenses.map(({ line }) => line)].join("\n   ");

await build({
  entryPoints: ["src/microscope.js", "src/microscope.css"],
  outdir: folder,
  bundle: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  charset: "utf8",
  legalComments: "inline",
  banner: { js: `/* ${notice}\n   The full texts are in licenses.txt beside this file, in the package wrt. */` },
});

await writeFile(`${folder}/licenses.txt`, licenses.map(({ line, text }) => `${line}\n\n${text.trim()}\n`).join(`\n${"-".repeat(80)}\n\n`));
