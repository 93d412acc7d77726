#include "turbogr/data/synth_user.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "turbogr/core/philox.h"
#include "turbogr/data/synth_world.h"

namespace turbogr::data {
namespace {

constexpr int kInterests = 6;
constexpr std::array<double, kInterests> kInterestShare = {.32, .22, .16, .13, .10, .07};
constexpr double kSwitch = .35;   // of interest, at an event
constexpr double kDrift = .12;    // of an interest replaced, at a session's start
constexpr double kFollow = .48;   // continue the interest's thread by a link
constexpr double kExplore = .05;  // a cluster that is no interest
constexpr int kMemory = 64;       // how far back repeats reach
constexpr double kSecond = 1000;  // milliseconds
constexpr double kDay = 86400 * kSecond;
constexpr double kGoldenRatio = .6180339887498949;
constexpr double kShortestSessionGap = 1800;  // seconds: what makes two sessions of one
constexpr double kMostActive = .4;            // share of the days a user can be busy

// What an event's kind does to the chance of a click; the mean over kinds is about one.
constexpr double kClickFollow = 1.15;
constexpr double kClickPlain = .93;
constexpr double kClickExplore = .5;

// 16 random bits against a probability.
constexpr std::uint32_t threshold(double probability) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): never negative, and lround is not constexpr
  return static_cast<std::uint32_t>(probability * 65536 + .5);
}

struct Session {
  std::int64_t events;
  double planned_ms;  // start, before the day's rhythm
};

// Everything a user carries from event to event.
class Walk {
 public:
  Walk(const SynthUser& user, SynthHistory& history)
      : user_(user),
        history_(history),
        random_(user.seed, static_cast<std::uint64_t>(user.user) * 2 + 1),
        stream_(static_cast<std::uint64_t>(user.user) * 2 + 2),
        single_(user.single_begin) {
    // Spread by a logistic law, at even steps for users sorted by length: small worlds click as
    // much as large ones.
    const double place = user.length_rank * static_cast<double>(user.users) * kGoldenRatio;
    const double even = std::clamp(place - std::floor(place), 1e-4, 1 - 1e-4);
    const double spread = std::log(even / (1 - even)) * std::numbers::sqrt3 / std::numbers::pi;
    const double logit = curve_linear(user.preset.click_logit, user.length_rank) +
                         user.preset.click_logit_spread * spread;
    click_rate_ = 1 / (1 + std::exp(-logit));
    const double single_share =
        static_cast<double>(user.single_end - user.single_begin) / static_cast<double>(user.length);
    // Slightly eager: a user who has used up his single items simply meets no more.
    single_threshold_ = threshold(single_share * 1.02);
    // More of one kind leaves less of the others.
    const double others = (1 - user.repeats) / (1 - kSynthRepeats);
    follow_threshold_ = threshold(kFollow * others);
    repeat_threshold_ = threshold(user.repeats);
    explore_threshold_ = threshold(kExplore * others);
    for (std::size_t i = 0; i < kInterests; ++i) renew(i);
    double share = 0;
    for (std::size_t i = 0; i < kInterests; ++i) {
      interest_bits_[i] = threshold(share += kInterestShare[i]);
    }
    plan_sessions();
  }

  void run() {
    double end_ms = -1;
    for (const Session& session : sessions_) {
      if (random_.uniform() < kDrift) renew(random_.below(kInterests));
      double start = warped(session.planned_ms);
      const double rest = kShortestSessionGap * kSecond * (1 + 1.4 * random_.uniform());
      if (end_ms >= 0) start = std::max(start, end_ms + rest);
      end_ms = run_session(session.events, start);
    }
  }

 private:
  void renew(std::size_t interest) {
    const std::uint32_t cluster = user_.catalogue.draw_cluster(random_.next_u32());
    last_[interest] = user_.catalogue.draw(cluster, random_.next_u32());
  }

  // Sessions of random length, spread over the days with random gaps.
  void plan_sessions() {
    const SynthPreset& preset = user_.preset;
    const auto length = static_cast<double>(user_.length);
    const double median = curve_log(preset.length, .5);
    const double usual = curve_log(preset.length, user_.length_rank);
    double wanted =
        preset.session_mean * std::pow(usual / median, .35) * std::exp(.25 * random_.normal());
    wanted = std::clamp(wanted, 1.0, std::max(1.0, length * preset.request_share * .5));
    const auto count = static_cast<std::size_t>(wanted);

    const double span = static_cast<double>(preset.days) * kDay;
    const double busy_per_event =
        preset.request_share * curve_log_mean(preset.request_gap) * kSecond;
    gap_scale_ = std::min(1.0, kMostActive * span / (busy_per_event * length));
    const double busy = busy_per_event * gap_scale_ * length;

    sessions_.resize(count);
    double weight_sum = 0;
    double gap_sum = 0;
    for (Session& session : sessions_) {
      session.planned_ms = gap_sum;  // of gaps alone; scaled below
      const double weight = -std::log(1.0 - random_.uniform());
      weight_sum += weight;
      session.events = static_cast<std::int64_t>(weight * 0x1p32);
      gap_sum += curve_log(preset.session_gap, random_.uniform()) * kSecond;
    }
    // The user is there on all days but for a day or two.
    const double present = span * (1 - .07 * random_.uniform());
    const double first = (span - present) * random_.uniform();
    const double scale = std::max(0.0, present - busy) / gap_sum;
    double weight_before = 0;
    std::int64_t before = 0;
    for (Session& session : sessions_) {
      session.planned_ms =
          first + session.planned_ms * scale + busy * static_cast<double>(before) / length;
      weight_before += static_cast<double>(session.events) * 0x1p-32;
      const auto until = std::min(
          user_.length, static_cast<std::int64_t>(std::ceil(weight_before / weight_sum * length)));
      session.events = until - before;
      before = until;
    }
    sessions_.back().events += user_.length - before;  // rounding's last event
    const double requests = preset.request_share * length - static_cast<double>(count);
    request_threshold_ = threshold(std::clamp(requests / length, 0.0, 1.0));
  }

  // The day's rhythm: even time in, busy hours out.
  double warped(double planned_ms) const {
    const double day = std::floor(planned_ms / kDay);
    const double place = (planned_ms / kDay - day) * static_cast<double>(user_.day_warp.size() - 1);
    const auto step = std::min(static_cast<std::size_t>(place), user_.day_warp.size() - 2);
    const double low = user_.day_warp[step];
    const double high = user_.day_warp[step + 1];
    return (day + low + (high - low) * (place - static_cast<double>(step))) * kDay;
  }

  double run_session(std::int64_t events, double now_ms) {
    const double last_ms = static_cast<double>(user_.preset.days) * kDay - 1;
    for (std::int64_t i = 0; i < events; ++i) {
      const auto bits = philox(user_.seed, counter_++, stream_);
      if (i > 0 && (bits[0] & 0xffffu) < request_threshold_) {
        const double gap = curve_log(user_.preset.request_gap, random_.uniform());
        now_ms += std::max(1.0, gap * gap_scale_ * kSecond);
      }
      now_ms = std::min(now_ms, last_ms);
      event(bits, user_.preset.begin_ms + static_cast<std::int64_t>(now_ms));
    }
    return now_ms;
  }

  void event(const std::array<std::uint32_t, 4>& bits, std::int64_t time) {
    if ((bits[0] >> 16) < threshold(kSwitch)) {
      const std::uint32_t draw = bits[1] & 0xffffu;
      interest_ = 0;
      while (interest_ + 1 < kInterests && draw >= interest_bits_[interest_]) ++interest_;
    }
    const std::uint32_t kind = bits[1] >> 16;
    double click = click_rate_ * kClickPlain;
    std::uint32_t item = 0;
    std::uint32_t bound = single_threshold_;
    if (kind < bound && single_ < user_.single_end) {
      item = user_.catalogue.single_id(single_++);
    } else if (kind < (bound += follow_threshold_)) {
      last_[interest_] = user_.catalogue.follow(last_[interest_], link(bits[2] & 0xffffu));
      item = user_.catalogue.id(last_[interest_]);
      click = click_rate_ * kClickFollow;
    } else if (kind < (bound += repeat_threshold_) && history_.items.size() > kMemory) {
      item = history_.items[history_.items.size() - 2 - bits[2] % (kMemory - 2)];
    } else if (kind < (bound += explore_threshold_)) {
      const std::uint32_t cluster = user_.catalogue.draw_cluster(bits[2] * 0x9e3779b9u);
      item = user_.catalogue.id(user_.catalogue.draw(cluster, bits[2]));
      click = click_rate_ * kClickExplore;
    } else {
      last_[interest_] = user_.catalogue.draw(last_[interest_].cluster, bits[2]);
      item = user_.catalogue.id(last_[interest_]);
    }
    history_.items.push_back(item);
    history_.times.push_back(time);
    history_.signals.push_back(signals(click, bits[3]));
  }

  static int link(std::uint32_t bits) {
    constexpr auto kShare = SynthCatalogue::kLinkShare;
    return bits < threshold(kShare[0])                           ? 0
           : bits < threshold(kShare[0] + kShare[1])             ? 1
           : bits < threshold(kShare[0] + kShare[1] + kShare[2]) ? 2
                                                                 : 3;
  }

  // Click from the upper bits; the rarer signals from the lower, with KuaiRand's rates given a
  // click and given none.
  static std::uint16_t signals(double click, std::uint32_t bits) {
    const bool clicked = (bits >> 16) < threshold(std::min(click, .98));
    std::uint32_t draw = bits & 0xffffu;
    std::uint32_t mask = clicked ? kSynthClick : 0u;
    if (clicked && draw < threshold(.70)) mask |= kSynthLongView;
    const auto take = [&](double with, double without, std::uint32_t signal) {
      draw = (draw * 40503u + 12345u) & 0xffffu;
      if (draw < threshold(clicked ? with : without)) mask |= signal;
    };
    take(.032, .0055, kSynthLike);
    take(.0026, .0003, kSynthFollow);
    take(.0056, .0001, kSynthComment);
    take(.0018, .0001, kSynthForward);
    take(.0008, .0008, kSynthHate);
    take(.039, .0022, kSynthProfileEnter);
    return static_cast<std::uint16_t>(mask);
  }

  const SynthUser& user_;
  SynthHistory& history_;
  PhiloxStream random_;   // rare draws: sessions, gaps, drift
  std::uint64_t stream_;  // one Philox block an event
  std::uint64_t counter_ = 0;
  double click_rate_ = 0;
  double gap_scale_ = 1;
  std::uint32_t request_threshold_ = 0;
  std::uint32_t single_threshold_ = 0;
  std::uint32_t follow_threshold_ = 0;
  std::uint32_t repeat_threshold_ = 0;
  std::uint32_t explore_threshold_ = 0;
  std::int64_t single_;
  std::size_t interest_ = 0;
  std::array<SynthCatalogue::Place, kInterests> last_ = {};
  std::array<std::uint32_t, kInterests> interest_bits_ = {};
  std::vector<Session> sessions_;
};

}  // namespace

void generate_synth_user(const SynthUser& user, SynthHistory& history) {
  history.items.clear();
  history.times.clear();
  history.signals.clear();
  Walk(user, history).run();
}

}  // namespace turbogr::data
