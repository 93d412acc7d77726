#include "turbogr/data/synth_presets.h"

#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// KuaiRand-27K's standard logs: 27,285 users, 322,278,385 events, 8 April to 8 May 2022.
constexpr CurvePoint kKuairandLength[] = {
    {0, 100},     {.01, 573},   {.02, 810},    {.05, 1393},    {.10, 2188},
    {.15, 2971},  {.20, 3744},  {.25, 4476},   {.30, 5252},    {.40, 6815},
    {.50, 8594},  {.60, 10712}, {.70, 13471},  {.75, 15227},   {.80, 17399},
    {.85, 20341}, {.90, 24587}, {.93, 28624},  {.95, 32591},   {.97, 38839},
    {.98, 44822}, {.99, 56230}, {.995, 67412}, {.999, 114979}, {1.0, 228000}};

// The Lorenz curve of exposures over videos, popular first, less the videos that only ever had one
// viewer (they are single_share). Points up to 0.23 are the published histogram's; beyond, counts
// are too small to be rates, and the curve is that of rates with density ~ rate^-1.5 between 0.5
// and 5.5 exposures, whose Poisson mixture gives back the published counts of videos seen 1, 2, 3,
// ... times.
constexpr CurvePoint kKuairandPopularity[] = {{0, 0},
                                              {3.96e-8, 4.93e-5},
                                              {3.96e-7, 3.62e-4},
                                              {3.96e-6, .00274},
                                              {3.96e-5, .0167},
                                              {1.189e-4, .0362},
                                              {3.963e-4, .0784},
                                              {1.189e-3, .1463},
                                              {3.963e-3, .2731},
                                              {.0127, .4561},
                                              {.0254, .5771},
                                              {.0396, .6530},
                                              {.0635, .7284},
                                              {.1270, .8258},
                                              {.2348, .8971},
                                              {.3517, .9356},
                                              {.5370, .9674},
                                              {1.0, 1.0}};

constexpr CurvePoint kKuairandClick[] = {{.05, .401},  {.15, .343},   {.25, .202},  {.35, .122},
                                         {.45, .022},  {.55, -.097},  {.65, -.231}, {.75, -.427},
                                         {.85, -.673}, {.95, -1.121}, {1.0, -1.75}};

constexpr CurvePoint kKuairandSessionGap[] = {{0, 1800},     {.30, 3600},   {.537, 7200},
                                              {.777, 18000}, {.937, 36000}, {.987, 86400},
                                              {1.0, 259200}};
constexpr CurvePoint kKuairandRequestGap[] = {{0, .001},   {.1226, 1},   {.2109, 10},
                                              {.5138, 60}, {.8730, 300}, {1.0, 1800}};
constexpr double kKuairandHours[] = {10.62, 6.46,  4.13,  2.91,  2.62,  3.69,  6.87,  9.97,
                                     11.55, 12.95, 14.43, 15.44, 17.03, 17.13, 15.45, 15.77,
                                     16.59, 17.53, 18.84, 19.87, 21.32, 22.12, 21.86, 17.12};

// MovieLens-1M: 6,040 users, 3,706 films, 1,000,209 ratings. Lengths, popularity and the share of
// good ratings are its own; the times are made up, in the way users rate: in a few long sittings.
constexpr CurvePoint kMovielensLength[] = {{0, 20},    {.25, 44},    {.50, 96},
                                           {.75, 208}, {.90, 400},   {.95, 556},
                                           {.99, 903}, {.999, 1323}, {1.0, 2314}};
constexpr CurvePoint kMovielensPopularity[] = {{0, 0},       {.01, .0873}, {.05, .2828},
                                               {.10, .4438}, {.20, .6516}, {.30, .7809},
                                               {.50, .9237}, {.70, .9814}, {1.0, 1.0}};
constexpr CurvePoint kMovielensClick[] = {{0, .30}, {1, .30}};  // a rating of four or five: 0.575
constexpr CurvePoint kMovielensSessionGap[] = {{0, 3600}, {.5, 86400}, {1.0, 864000}};
constexpr CurvePoint kMovielensRequestGap[] = {{0, 1}, {.5, 20}, {.9, 60}, {1.0, 600}};
constexpr double kFlatHours[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

constexpr SynthPreset kPresets[] = {
    {.name = "kuairand27k",
     .length = kKuairandLength,
     .popularity = kKuairandPopularity,
     .click_logit = kKuairandClick,
     .session_gap = kKuairandSessionGap,
     .request_gap = kKuairandRequestGap,
     .hour_weight = kKuairandHours,
     .click_logit_spread = .72,
     .request_share = .1945,
     .session_mean = 140,
     .events_per_shared = 12.77,
     .single_share = .0367,
     .begin_ms = 1649347200000,  // 8 April 2022, midnight in China
     .days = 31,
     .utc_offset_ms = 8 * 3600 * 1000},
    {.name = "movielens",
     .length = kMovielensLength,
     .popularity = kMovielensPopularity,
     .click_logit = kMovielensClick,
     .session_gap = kMovielensSessionGap,
     .request_gap = kMovielensRequestGap,
     .hour_weight = kFlatHours,
     .click_logit_spread = .5,
     .request_share = .55,
     .session_mean = 2,
     .items = 3706,
     .begin_ms = 956700000000,
     .days = 365},
};

const CurvePoint* segment(std::span<const CurvePoint> curve, double x) {
  std::size_t i = 0;
  while (i + 2 < curve.size() && curve[i + 1].x < x) ++i;
  return &curve[i];
}

double part(const CurvePoint* p, double x) {
  const double t = (x - p[0].x) / (p[1].x - p[0].x);
  return t < 0 ? 0 : t > 1 ? 1 : t;
}

}  // namespace

const SynthPreset& synth_preset(std::string_view name) {
  for (const SynthPreset& preset : kPresets) {
    if (preset.name == name) return preset;
  }
  detail::throw_error("synth: no preset '", name, "'; use kuairand27k, movielens or yambda");
}

double curve_linear(std::span<const CurvePoint> curve, double x) {
  const CurvePoint* p = segment(curve, x);
  return p[0].y + part(p, x) * (p[1].y - p[0].y);
}

double curve_log(std::span<const CurvePoint> curve, double x) {
  const CurvePoint* p = segment(curve, x);
  return p[0].y * std::pow(p[1].y / p[0].y, part(p, x));
}

double curve_log_mean(std::span<const CurvePoint> curve) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
    const double width = curve[i + 1].x - curve[i].x;
    const double ratio = curve[i + 1].y / curve[i].y;
    sum += width * (ratio == 1 ? curve[i].y : (curve[i + 1].y - curve[i].y) / std::log(ratio));
  }
  return sum;
}

}  // namespace turbogr::data
