#include "turbogr/data/features/known_tables.h"

namespace turbogr::data {
namespace {

// movies.dat of data/movies.dat.gz.
std::string plain_name(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  return (ending == ".gz" || ending == ".zst" ? file.stem() : file.filename()).string();
}

}  // namespace

std::vector<std::string> columns_without_header(const std::filesystem::path& file) {
  const std::string name = plain_name(file);
  if (name == "movies.dat") return {"movieId", "title", "genres"};
  if (name == "users.dat") return {"userId", "gender", "age", "occupation", "zip"};
  if (name == "u.user") return {"userId", "age", "gender", "occupation", "zip"};
  return {};
}

std::vector<std::string> usual_features(const std::filesystem::path& file) {
  const std::string name = plain_name(file);
  if (name == "movies.dat" || name == "movies.csv") return {"genres:bag:bar"};
  if (name == "users.dat" || name == "u.user") return {"gender", "age", "occupation"};
  if (name.starts_with("video_features_basic")) {
    return {"author_id", "video_type", "upload_type",   "visible_status",
            "music_id",  "music_type", "tag:bag:comma", "video_duration:number"};
  }
  if (name.starts_with("user_features")) {
    std::vector<std::string> features = {"user_active_degree",    "is_lowactive_period",
                                         "is_live_streamer",      "is_video_author",
                                         "follow_user_num_range", "fans_user_num_range",
                                         "friend_user_num_range", "register_days_range"};
    for (int i = 0; i < 18; ++i) features.push_back("onehot_feat" + std::to_string(i));
    return features;
  }
  return {};
}

}  // namespace turbogr::data
