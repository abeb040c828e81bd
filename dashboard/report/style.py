"""The look of the report: light paper on screen, A4 in print."""

CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #efece6; color: #23282f;
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 28px 36px 48px; background: #fffefb; }
h1 { font-size: 22px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 16px; margin: 26px 0 6px; padding-top: 10px; border-top: 2px solid #23282f; }
h2.part { font-size: 13px; margin: 14px 0 4px; padding: 0; border: 0; }
p { margin: 4px 0; }
.quiet { color: #5d6671; font-size: 12px; }
.mark { display: inline-block; margin: 6px 6px 0 0; padding: 2px 8px; border: 1px solid #b58700;
  border-radius: 3px; font-size: 12px; background: #fdf6e3; }
.lead { font-size: 17px; line-height: 1.35; margin: 12px 0 8px; }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: 14px; margin: 10px 0 2px; }
.figure { border: 1px solid #d9dde2; border-radius: 4px; padding: 8px 10px; }
.figure .value { font-size: 19px; font-weight: 600; margin: 1px 0; }
.figure .label { font-size: 12px; font-weight: 600; }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 4px 22px; }
ul, ol { margin: 2px 0; padding-left: 18px; }
li { margin: 2px 0; }
.chart { display: block; width: 100%; height: auto; margin: 4px 0;
  font-family: inherit; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: 12px; margin: 4px 0 8px;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
th { text-align: left; font-weight: 600; border-bottom: 1px solid #23282f; padding: 2px 8px 2px 0;
  vertical-align: bottom; }
td { border-bottom: 1px solid #e6e3dc; padding: 2px 8px 2px 0; vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap; }
td, li, p, dd { overflow-wrap: anywhere; }
td.number { overflow-wrap: normal; }
.whole { white-space: nowrap; }
.wide { overflow-x: auto; }
.wide th.number { white-space: normal; }
.wide td:first-child { min-width: 9em; }
.between { display: block; font-size: 11px; color: #5d6671; }
code { font: 12px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; background: #f3f0e9;
  padding: 0 3px; border-radius: 2px; overflow-wrap: anywhere; }
.missing { border-left: 3px solid #b58700; padding: 2px 10px; margin: 6px 0; font-size: 12px;
  background: #fdf9ee; }
dt { font-weight: 600; margin-top: 8px; font-size: 13px; }
dd { margin: 0 0 0 14px; font-size: 12px; }
footer { margin-top: 28px; }
@media (max-width: 640px) {
  main { padding: 16px; }
  .figures, .columns { grid-template-columns: 1fr; }
  table { display: block; overflow-x: auto; }
  .wide .chart { min-width: 560px; }
}
@media print {
  @page { size: A4; margin: 13mm 13mm 14mm; }
  body { background: none; font-size: 10pt; }
  main { max-width: none; padding: 0; background: none; }
  .lead { font-size: 12.5pt; margin: 6pt 0 4pt; }
  .figure .value { font-size: 13pt; }
  h1 { font-size: 15pt; }
  h2 { font-size: 12pt; margin: 14pt 0 4pt; padding-top: 6pt; break-after: avoid; }
  dt { font-size: 9pt; }
  h2.part { margin: 6pt 0 1pt; padding: 0; font-size: 9.5pt; }
  .page-one li, .page-one p { font-size: 8.5pt; line-height: 1.35; }
  .page-one p.lead { font-size: 12pt; }
  .page-one .quiet, .page-one .missing { font-size: 7.5pt; }
  .figures { gap: 8pt; margin: 6pt 0 1pt; }
  .figure { padding: 5pt 7pt; }
  .mark { font-size: 8pt; margin-top: 3pt; }
  .quiet, table, .missing, dd { font-size: 8.5pt; }
  .page-one { break-after: page; }
  .figure, .chart, .missing, table, tr, li, dt { break-inside: avoid; }
  dt { break-after: avoid; }
  thead { display: table-header-group; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
""".strip()
