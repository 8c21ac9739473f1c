// Bundle the page into the two files that the Python package ships.
import { build } from "esbuild";

const folder = process.argv[2] ?? "../src/wrt/_microscope/assets";

await build({
  entryPoints: ["src/microscope.js", "src/microscope.css"],
  outdir: folder,
  bundle: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  charset: "utf8",
  legalComments: "inline",
  banner: { js: "/* Built from frontend/ by `make page`. Contains Preact, htm, @preact/signals and dagre (MIT, Apache-2.0). */" },
});
